"""C9, C17 and C19: CUDA graphs, TF32, and what is free."""

from __future__ import annotations

from collections.abc import Sequence

from accel_helpers import bench
from accel_helpers.bench import Comparison
from accel_helpers.charts import ratio, seconds
from accel_helpers.charts.launches import operator_price
from accel_helpers.charts.words import plan_labels
from accel_helpers.claims.judging import WORST_FIRST, judge, made, percent
from accel_helpers.compilation.costs.launch import Format, Overhead
from accel_helpers.compilation.costs.lunches import MINUTES, rank
from accel_helpers.intervals import Estimate
from accel_helpers.records import Claim, Environment, Finding, Measurement

REMOVED = 0.5
"""Launch overhead is called removed where at least this share of an operator's price goes."""
NEARLY = 0.9
"""TF32 is called nearly as fast as FP16 from this share of its speed on."""
SAME = 2.0
"""A format keeps its range where its error at no magnitude is more than so many times the one at its best."""


def graphs_remove_overhead(found: Overhead) -> Claim:
    """C9: what an operator costs in a replayed CUDA graph, beside eager; on a CPU, what fewer dispatches save, and the claim stays open."""
    eager, others = found.chains[0], found.chains[1:]
    graphs = [one for one in others if one.plan.device == "cuda" and "graph" in one.plan.mode]
    costs = [
        f"{name} {operator_price(one)}" for name, one in zip(plan_labels([one.plan for one in found.chains]), found.chains, strict=True)
    ]
    evidence = (
        f"Each further operator of a chain costs {', '.join(costs)}; the {found.operators} operators of {found.model} at that price are "
        f"{percent(found.share)} of its eager call of {seconds(found.seconds)}."
    )
    verdict: Finding = "not tested here"
    if graphs:
        left = graphs[0].against(eager)
        saved = Estimate(1 - left.value, 1 - left.high, 1 - left.low)
        verdict = judge(saved, at_least=REMOVED)
        evidence += f" The graph takes {percent(saved)} of an operator's price away; at least {REMOVED:.0%} would be removing it."
    else:
        evidence += " CUDA graphs need a GPU: not yet run on a GPU."
    statement = "CUDA graphs remove launch overhead for small models"
    return made("C9", statement, verdict, evidence, environment=found.environment, model=found.model)


def tf32_is_nearly_fp16(found: Sequence[Format], here: Environment, comparison: Comparison | None = None) -> Claim:
    """C17: the range and error of the formats, by emulation anywhere; their speed, from a comparison on a GPU that holds both."""
    tf32, fp16 = (next(one for one in found if one.name == name) for name in ("tf32", "fp16"))
    best = min(error for _, error in fp16.errors)
    ends = [f"{scale:g}" for scale, error in fp16.errors if error > SAME * best]
    ranged: Finding = "holds" if tf32.spread <= SAME * min(error for _, error in tf32.errors) else "does not hold here"
    evidence = (
        f"By emulation, the error of a product is at most {tf32.spread:.1e} in TF32 at every magnitude tried, and {best:.1e} in FP16 at "
        f"its best; FP16 loses more, or has no number left, at {' and '.join(ends) or 'none of them'} (largest {fp16.largest:,.0f})."
    )
    statement = "TF32 is nearly as fast as FP16 with FP32's range"
    pair = {one.plan.precision: one for one in comparison.measurements if one.plan.device == "cuda"} if comparison else {}
    if not {"tf32", "fp16"} <= pair.keys():
        return made("C17", statement, "not tested here", f"{evidence} Its speed needs a GPU: not yet run on a GPU.", environment=here)
    speed = bench.judge(pair["fp16"], pair["tf32"])
    evidence += f" TF32 runs at {ratio(speed.speedup)} the speed of FP16; at least {NEARLY:g} would be nearly."
    verdict = min(judge(speed.speedup, at_least=NEARLY), ranged, key=WORST_FIRST.index)
    return made("C17", statement, verdict, evidence, [pair["tf32"], pair["fp16"], speed])


def free_lunch(comparison: Comparison, minutes: float = MINUTES) -> Claim:
    """C19: whether torch.compile is free here. Optimum builds ONNX Runtime and OpenVINO models; those routes stand for it, unjudged."""
    base, ranked = comparison.measurements[0], rank(comparison, minutes=minutes)
    words: dict[str, Finding] = {"free": "holds", "not free": "does not hold here", "cannot say": "too noisy to say"}
    usual = ("compiled", "default", base.plan.precision, None)
    judged = [one for one in ranked if (one.plan.engine, one.plan.mode, one.plan.precision, one.plan.quantization) == usual]
    verdict: Finding = words[judged[0].free] if judged else "not tested here"
    said = [
        f"{name} {ratio(one.speedup)} for {seconds(one.spent)} ({one.free}: {one.why})"
        for name, one in zip(plan_labels([one.plan for one in ranked]), ranked, strict=True)
    ]
    routes = [one for one in ranked if one.plan.engine in ("onnx_runtime", "openvino")]
    optimum = f"its routes here, ONNX Runtime and OpenVINO, are free in {sum(one.free == 'free' for one in routes)} of {len(routes)} plans"
    evidence = (
        f"Against {base.plan.label}, free meaning faster, right and ready within {minutes:g} minutes: "
        f"{'; '.join(said)}. The verdict is that of compiled {base.plan.precision}{'' if judged else ', which was not measured'}; "
        f"Optimum itself was not run{': ' + optimum if routes else ', nor a route of its'}."
    )
    return made("C19", "torch.compile and Optimum are a free lunch", verdict, evidence, _records(comparison))


def _records(comparison: Comparison) -> list[Measurement]:
    """What the claim rests on; an INVALID plan is named in the evidence and spoils no other's verdict."""
    return [one for one in comparison.measurements if one.status != "INVALID"] or list(comparison.measurements)
