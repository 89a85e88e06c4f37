"""How a claim is judged and written down."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from accel_helpers.intervals import Estimate
from accel_helpers.records import Claim, Environment, Finding, Measurement, Verdict

WORST_FIRST: tuple[Finding, ...] = ("does not hold here", "not tested here", "too noisy to say", "holds")
"""A claim of several parts is as good as its worst: ``min(findings, key=WORST_FIRST.index)``."""


def judge(estimate: Estimate, *, at_least: float) -> Finding:
    """Whether a quantity reaches a bound, in the words of a claim."""
    if estimate.low >= at_least:
        return "holds"
    return "does not hold here" if estimate.high < at_least else "too noisy to say"


def percent(share: Estimate) -> str:
    """A share with its interval, for people."""
    digits = 0 if share.value >= 0.01 else 1
    return f"{share.value:.{digits}%} [{share.low:.{digits}%}, {share.high:.{digits}%}]"


def made(
    name: str,
    statement: str,
    verdict: Finding,
    evidence: str,
    records: Sequence[Measurement | Verdict] = (),
    environment: Environment | None = None,
    model: str = "",
) -> Claim:
    """The record of a claim; an INVALID measurement behind it leaves it undecided.

    Args:
        name: its id: "C4".
        statement: what people say.
        verdict: what was found.
        evidence: the figures, in a sentence.
        records: what it rests on, measurements first.
        environment: where it was found; needed where there is no measurement.
        model: needed where there is no measurement.
    """
    if verdict != "not tested here" and any(one.status == "INVALID" for one in records):
        verdict, evidence = "too noisy to say", f"{evidence} A measurement behind this is INVALID."
    measured = [one for one in records if isinstance(one, Measurement)]
    here = environment or measured[0].environment
    return Claim(
        id=name,
        statement=statement,
        verdict=verdict,
        evidence=evidence,
        hardware=here.hardware,
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        model=measured[0].model if measured else model,
        records=tuple(one.digest for one in records),
    )
