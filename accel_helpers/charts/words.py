"""What a figure needs beside it to be believed, in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from accel_helpers.charts.units import rate, ratio, seconds
from accel_helpers.errors import ParameterError
from accel_helpers.records import Environment, Measurement, Plan, Quantization, Verdict

_ACTIVATIONS = ("dynamic", "static", "accuracy_control")
"""Schemes under which a plan chooses the form of its integers; the others leave those fields at their defaults."""


def extras(plans: Sequence[Plan], fields: Sequence[str]) -> list[list[str]]:
    """For each plan its values of those ``fields``, and of its quantization, in which the plans differ.

    They are named only where they tell plans apart. What is usual in a quantization (per channel, U8S8, eight bits, FP32 for the rest)
    stays unsaid beside the plan that differs.
    """
    differ = [name for name in fields if len({getattr(plan, name) for plan in plans}) > 1]
    return [[*(_extra(plan, name) for name in differ), *more] for plan, more in zip(plans, _quantized(plans), strict=True)]


def _extra(plan: Plan, name: str) -> str:
    words = {"threads": counted(plan.threads, "thread"), "sequence": f"{plan.sequence} tokens", "hint": f"{plan.hint} hint"}
    return words.get(name, str(getattr(plan, name)))


def _quantized(plans: Sequence[Plan]) -> list[list[str]]:
    used = [_used(plan.precision, plan.quantization) if plan.quantization else {} for plan in plans]
    differ = {name for one in used for name in one if len({other[name] for other in used if name in other}) > 1}
    return [[words for name, words in one.items() if words and name in differ] for one in used]


def _used(precision: str, one: Quantization) -> dict[str, str]:
    """A short word for each field that decides something under this scheme, and no word for what is usual."""
    found = {
        "per_channel": "" if one.per_channel else "per tensor",
        "rest": "" if one.rest == "fp32" else f"rest {one.rest}",
        "keep": counted(len(one.keep), "layer") + " kept" if one.keep else "",
    }
    if one.calibration:
        found["calibration"] = counted(one.calibration, "sample")
        found["calibrator"] = one.calibrator
        found["calibration_data"] = "" if one.calibration_data == "representative" else f"{one.calibration_data.replace('_', ' ')} data"
        found["seed"] = f"seed {one.seed}"
    if precision == "int8" and one.scheme in _ACTIVATIONS:
        found["symmetric"] = "S8S8" if one.symmetric else ""
        found["reduce_range"] = "7-bit weights" if one.reduce_range else ""
    return found


def plan_labels(plans: Sequence[Plan]) -> list[str]:
    """A distinct name for each plan: :attr:`Plan.label`, and whatever else differs between them."""
    found = extras(plans, ("threads", "sequence", "hint"))
    return _distinct([", ".join([plan.label, *more]) for plan, more in zip(plans, found, strict=True)])


def labels(measurements: Sequence[Measurement]) -> list[str]:
    """A distinct name for each measurement: its plan's, with the model and the scope where they differ."""
    found = extras([one.plan for one in measurements], ("threads", "sequence", "hint"))
    models, scopes = len({one.model for one in measurements}) > 1, len({one.scope for one in measurements}) > 1
    return _distinct(
        [
            ", ".join([one.model] * models + [one.plan.label] + more + [one.scope] * scopes)
            for one, more in zip(measurements, found, strict=True)
        ]
    )


def _distinct(names: Sequence[str]) -> list[str]:
    """Names that occur more than once get a number."""
    often, seen, distinct = Counter(names), Counter[str](), []
    for name in names:
        seen[name] += 1
        distinct.append(f"{name} #{seen[name]}" if often[name] > 1 else name)
    return distinct


def machine(environment: Environment) -> str:
    """The machine in a few words."""
    gpus = [f"{count} x {name}" for name, count in Counter(gpu.name for gpu in environment.gpus).items()]
    return ", ".join([environment.cpu, f"{environment.cpus} CPUs", *(gpus or ["no GPU"])])


def counted(number: int, one: str) -> str:
    """A number and its noun: ``1 call``, ``240 calls``."""
    return f"{number:,} {one}{'' if number == 1 else 's'}"


def sampled(measurement: Measurement) -> str:
    """How much evidence there is: ``n = 240 calls in 12 rounds``."""
    return f"n = {counted(len(measurement.samples), 'call')} in {counted(len(measurement.rounds), 'round')}"


def reasoned(status: str, reasons: Sequence[str]) -> str:
    """A status with its reasons."""
    return f"{status} ({'; '.join(reasons)})" if reasons else status


def describe(measurement: Measurement) -> str:
    """One measurement with all that its figures need beside them.

    Median call time, throughput and CPU time with their 95 % intervals, calls, rounds, load model, errors, warm-up, machine, artifact hash,
    whether the outputs were right, and the status with its reasons.
    """
    plan = measurement.plan
    figures = (
        f"P50 {seconds(measurement.p50)}, throughput {rate(measurement.throughput)}, CPU time {seconds(measurement.cpu_time)} per call "
        f"(95 % intervals)"
    )
    what = f"{measurement.model}, {plan.label}, {counted(plan.threads, 'thread')}, {measurement.scope}"
    return f"{what}: {figures}; {_evidence(measurement)}; {machine(measurement.environment)}."


def describe_verdict(verdict: Verdict, measurements: Sequence[Measurement]) -> str:
    """One comparison with all that its figures need beside them.

    Raises:
        ParameterError: a measurement that was compared is not among ``measurements``.
    """
    baseline, candidate = compared(verdict, measurements)
    names = labels([baseline, candidate])
    score = ""
    if verdict.score_change is not None and candidate.score is not None:
        score = f"; {candidate.score.name} changed by {verdict.score_change:+.4f} ({candidate.score.samples:,} samples)"
    status = verdict.status if verdict.status == "VALID" else f"{verdict.status}, for the reasons below"
    return (
        f"{names[1]} against {names[0]}, {candidate.model}, seconds per item: {verdict.word}, {ratio(verdict.speedup)} by wall time; "
        f"{verdict.cpu_word}, {ratio(verdict.cpu_speedup)} by CPU time (95 % intervals, {counted(len(verdict.wall), 'paired round')})"
        f"{score}; {status}. Baseline: {_evidence(baseline)}. Candidate: {_evidence(candidate)}. "
        f"Machine: {machine(candidate.environment)}."
    )


def compared(verdict: Verdict, measurements: Sequence[Measurement]) -> tuple[Measurement, Measurement]:
    """The baseline and the candidate of a verdict.

    Raises:
        ParameterError: one of them is not among ``measurements``.
    """
    known: Mapping[str, Measurement] = {one.digest: one for one in measurements}
    for role, digest in (("baseline", verdict.baseline), ("candidate", verdict.candidate)):
        if digest not in known:
            raise ParameterError(
                f"The {role} {digest[:12]} of a verdict is not among the {len(known)} measurements given.",
                "Give every measurement that was compared.",
            )
    return known[verdict.baseline], known[verdict.candidate]


def outputs(measurement: Measurement) -> str:
    """Whether the outputs were right."""
    for check in measurement.checks:
        if check.name == "outputs":
            verdict = {True: "right", False: "WRONG", None: "not checked"}[check.passed]
            return f"outputs {verdict} ({check.detail})"
    return "outputs not checked"


def _evidence(measurement: Measurement) -> str:
    artifact = f"artifact {measurement.artifact[:12]}" if measurement.artifact else "no artifact"
    left_out = f"first call {seconds(measurement.first_call)} and {counted(len(measurement.warmup), 'warm-up call')} left out"
    return (
        f"{sampled(measurement)}, {measurement.load_model}, {counted(measurement.errors, 'error')}; {left_out}; {artifact}; "
        f"{outputs(measurement)}; {reasoned(measurement.status, measurement.reasons)}"
    )
