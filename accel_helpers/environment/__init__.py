"""What this machine has, whether it fits together, what it can reach, and which route to take.

Nothing here imports a framework: versions come from package metadata, and the ceilings are measured in a process of their own.
"""

from accel_helpers.environment.ceilings import Ceilings, Limit, bound, ceilings, share
from accel_helpers.environment.cost import Cost, cost
from accel_helpers.environment.finding import Finding
from accel_helpers.environment.findings import findings
from accel_helpers.environment.machine import describe
from accel_helpers.environment.render import as_rows, render
from accel_helpers.environment.route import Step, route

__all__ = [
    "Ceilings",
    "Cost",
    "Finding",
    "Limit",
    "Step",
    "as_rows",
    "bound",
    "ceilings",
    "check",
    "cost",
    "describe",
    "findings",
    "render",
    "route",
    "share",
]


def check() -> str:
    """This machine, what is wrong with it and the route to take, as text for a terminal. Measures nothing and never raises."""
    here = describe()
    return render(here, findings(here), route(here))
