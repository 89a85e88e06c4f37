"""From evidence to the causes of slowness and wrongness: the rules of ``slow`` and ``wrong``, weighed and put in order."""

from __future__ import annotations

from accel_helpers.quantize import slow, wrong
from accel_helpers.quantize.cause import Cause
from accel_helpers.quantize.evidence import Evidence

FASTER = 1.1
"""The least gain in speed, by its lower bound, that makes a cause where the slowness itself was not measured; 1.05 where it was."""
_FASTER_KNOWN = 1.05
LESS = 2.0
"""The least factor by which a cure reduces the error where the wrongness itself was not measured; 1.1 where it was."""
_LESS_KNOWN = 1.1


def explain(evidence: Evidence) -> tuple[Cause, ...]:
    """The causes that the evidence names; empty for a model with nothing to explain.

    Those of a symptom that was measured come first, then the one whose cure promises most.

    A model that was measured to be faster has no cause of slowness, and one that is as right as FP32 none of wrongness, except those
    causes that make FP32 wrong too. Where the symptom was not measured, a cause must promise more: see :data:`FASTER` and :data:`LESS`.
    """
    found = []
    if evidence.slow is not False:
        found += [cause for rule in slow.RULES if (cause := rule(evidence)) and _pays(cause, evidence)]
    for rule in wrong.RULES:
        cause = rule(evidence)
        if cause and (cause.name in wrong.OF_THE_MODEL or _helps(cause, evidence)):
            found.append(cause)
    seen = {"slow": evidence.slow, "wrong": evidence.wrong}
    return tuple(sorted(found, key=lambda cause: (not seen[cause.symptom], -cause.predicted.value)))


def _pays(cause: Cause, evidence: Evidence) -> bool:
    if evidence.slow is None:
        nothing = cause.name == "not_quantized" and evidence.census is not None and not evidence.census.share()
        return nothing or cause.predicted.low >= FASTER  # a census without an integer is a symptom by itself
    return cause.predicted.high >= 1 if cause.name in slow.OF_THE_MACHINE else cause.predicted.value >= _FASTER_KNOWN


def _helps(cause: Cause, evidence: Evidence) -> bool:
    return evidence.wrong is not False and cause.predicted.value >= (_LESS_KNOWN if evidence.wrong else LESS)
