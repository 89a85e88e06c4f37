"""What the harness itself adds to a timed call, through the engine that computes nothing.

python benchmarks/harness_cost.py
"""

from __future__ import annotations

import numpy as np

from accel_helpers.engines.null import NullSession
from accel_helpers.intervals import log_centre
from accel_helpers.measure import MOST_CALLS, Subject
from accel_helpers.records import Scope

ROUNDS = 60


def main() -> None:
    """Print the median seconds of a timed call that does nothing, for both scopes."""
    scopes: tuple[Scope, ...] = ("compute", "end to end")
    for scope in scopes:
        subject = Subject(NullSession({"y": (2,)}), [{"x": np.zeros((1, 64), np.float32)}], scope=scope)
        subject.warm_up(0.2)
        cost = log_centre([subject.round(MOST_CALLS).wall_median for _ in range(ROUNDS)])
        print(f"{scope}: {cost.value * 1e6:.2f} us a call [{cost.low * 1e6:.2f}, {cost.high * 1e6:.2f}], {ROUNDS} rounds of {MOST_CALLS}")


if __name__ == "__main__":
    main()
