"""C14 and C15: what simplifying and shapes do for builds. Outcomes of builds are exact, so these claims have counts and no intervals."""

from __future__ import annotations

from collections.abc import Sequence

from accel_helpers.claims.judging import made
from accel_helpers.compilation.builds.attempts import ShapeTrial, ShapeTrials, SimplifyTrial, SimplifyTrials
from accel_helpers.compilation.builds.shape_trials import OPENVINO, ORT, TENSORRT
from accel_helpers.engines._onnx_simplify import TOOLS
from accel_helpers.records import Claim, Environment, Finding


def simplifying_helps(trials: SimplifyTrials, here: Environment) -> Claim:
    """C14: it holds if one tool makes every refused graph build with the same outputs, and no graph that was built is refused after it."""
    statement = "Simplifying the ONNX graph makes builds succeed"
    if trials.missing or not trials.refused:
        why = trials.missing or "no graph was refused"
        return made("C14", statement, "not tested here", f"Not tried: {why}.", environment=here)
    refused, healthy = trials.refused, trials.healthy
    mended = {tool: trials.mended(tool) for tool in TOOLS}
    either = {one.title for found in mended.values() for one in found}
    broken = [(one.title, after.tool) for one in healthy for after in one.after if not after.helped]
    foldable = [one for one in refused if one.foldable]
    others = [one for one in refused if not one.foldable]
    every = max(map(len, mended.values())) == len(refused)
    verdict: Finding = "holds" if every and not broken else "does not hold here"
    evidence = (
        f"Of {len(refused)} small graphs that TensorRT refuses, {_listed([f'{tool} mends {len(one)}' for tool, one in mended.items()])}, "
        f"with the same outputs: together {_share(foldable, either)} whose trouble is computed from constants or read by nothing, and "
        f"{_share(others, either)} others, whose operator, type or setting TensorRT lacks. "
        f"Of {len(healthy)} that it builds, {len({title for title, _ in broken})} are refused or changed afterwards. "
        "Counts, without an interval; the graphs were made to fail, so how often a reader's graph is one of these it does not say."
    )
    return made("C14", statement, verdict, evidence, environment=here)


def shapes_mend(trials: ShapeTrials, here: Environment) -> Claim:
    """C15: it holds if TensorRT refuses to build every wrong declaration, and builds the right one."""
    statement = "Wrong dynamic dimensions break the build; minimum, optimum and maximum shapes mend it"
    wrong, right = trials.of(TENSORRT, "build", True), trials.of(TENSORRT, "build", False)
    if trials.missing or not wrong or not right:
        evidence = f"TensorRT was not tried: {trials.missing or 'no trial'}. {_on_cpu(trials)}"
        return made("C15", statement, "not tested here", evidence, environment=here, model=trials.model)
    passed = [one.declared for one in wrong if one.ok]
    mended = all(one.ok for one in right)
    verdict: Finding = "holds" if not passed and mended else "does not hold here"
    built = f"it builds {len(passed)} without an error, which fail or answer wrongly only when run ({'; '.join(passed)})"
    evidence = (
        f"Of {len(wrong)} wrong declarations of the batch TensorRT refuses to build {len(wrong) - len(passed)}"
        f"{f', and {built}' if passed else ''}. Least, usual and greatest shapes in order {'build' if mended else 'do not build'}. "
        f"{_on_cpu(trials)} Counts, without an interval. A TensorRT engine at another batch: not yet run on a GPU."
    )
    return made("C15", statement, verdict, evidence, environment=here, model=trials.model)


def _on_cpu(trials: ShapeTrials) -> str:
    """What both CPU runtimes make of a batch that the export did not hold, and of an open one."""
    said = []
    for runtime in (ORT, OPENVINO):
        wrong, right = trials.of(runtime, "run", True), trials.of(runtime, "run", False)
        said.append(f"{runtime} {_failed(wrong)} of {len(wrong)} wrong ones, {_failed(right)} of {len(right)} open ones")
    return f"At another batch than the exported one, on this CPU, these fail or answer another shape: {'; '.join(said)}."


def _failed(found: Sequence[ShapeTrial]) -> int:
    return sum(not one.ok for one in found)


def _share(some: Sequence[SimplifyTrial], titles: set[str]) -> str:
    return f"{sum(one.title in titles for one in some)} of the {len(some)}"


def _listed(words: Sequence[str]) -> str:
    return " and ".join(words)
