"""AOTInductor: the network exported and compiled to a shared library when it is built, so that loading compiles nothing.

The package is a ZIP file of the generated C++ source, the library made of it with the weights inside, and a few lines of JSON. Loading
copies them to a folder of its own and opens the library, which is machine code and runs with this process's rights, as any compiled
engine does. Nothing is unpickled: the C++ loader used here reads no Python objects. ``torch._inductor.aoti_load_package`` calls the same
loader, and would before that unpickle weights or an exported program, if somebody had put such into the package.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from accel_helpers.engines._executed import executed
from accel_helpers.engines._inductor import cache_in_store, look_up_eagerly, operators
from accel_helpers.engines._inputs import first_line
from accel_helpers.engines._onnx_check import CHECKED_SEQUENCES, quiet, relative, sizes
from accel_helpers.engines.pytorch import TorchSession, network_of
from accel_helpers.errors import ArtifactError, ModelError
from accel_helpers.models import Model
from accel_helpers.records import Plan

PACKAGE = "model.pt2"
_OPERATORS = "operators"
_KEPT = "the model itself computes it in this type"
_ERROR = {"fp32": 1e-3}
"""The relative error allowed beside the network itself in the same type; in 16 bits a fused program rounds at other places."""
_ERROR_16 = 0.05
_SETTINGS = {
    "freezing": True,
    "compile_threads": 1,
    # One package serves every number of threads: it is not written into the code.
    "cpp.dynamic_threads": True,
    # Precompiled headers would be kept outside of the store.
    "aot_inductor.precompile_headers": False,
    "aot_inductor.enable_line_tables": False,
}


class AotSession(TorchSession):
    """A loaded package; it compiles nothing, whatever the sizes of its inputs.

    Closing removes the files that loading unpacked. PyTorch never closes a library that it opened, so what was read of it stays in memory
    until the process ends.
    """

    def _executed(self) -> dict[str, Any]:
        counts = Counter({(name, kind): count for name, kind, count in json.loads(self._network.get_metadata()[_OPERATORS])})
        return {**executed(counts, self._plan, _KEPT), "compilations": {}, "recompilations": 0}

    def _forward(self, placed: dict[str, Any]) -> Any:
        return self._network.boxed_run(list(placed.values()))


def build(model: Model, plan: Plan, out: Path) -> dict[str, Any]:
    """Export the network with its axes open, compile it into ``out/model.pt2``, and compare it with the network at several sizes.

    Returns:
        The report: operators by type, the sizes compared and the largest relative error.

    Raises:
        ModelError: the network cannot be exported or compiled with open axes, or answers otherwise at some size.
    """
    cache_in_store()
    network = network_of(model, plan)
    with TorchSession(model, plan, network) as eager:
        _compile(model, plan, network, eager, out / PACKAGE)
        with load(model, plan, out) as session:
            worst = _compared(model, plan, session, eager)
            return {**session.report, "checked": [list(size) for size in sizes(model)], "worst_error": worst}


def load(model: Model, plan: Plan, folder: Path) -> AotSession:
    """A session on a package.

    Raises:
        ArtifactError: it cannot be read.
    """
    import torch

    path = folder / PACKAGE
    try:
        loader = torch._C._aoti.AOTIModelPackageLoader(str(path), "model", False, 1, -1)
        session = AotSession(model, plan, loader)
        json.loads(loader.get_metadata()[_OPERATORS])
    except (RuntimeError, KeyError, ValueError) as error:
        raise ArtifactError(f"{PACKAGE} of {model.name} cannot be loaded: {first_line(error)}.", "Build the artifact again.") from error
    return session


def _compile(model: Model, plan: Plan, network: Any, eager: TorchSession, path: Path) -> None:
    import torch
    import torch.fx.experimental._config

    inputs = eager.place(model.example(2, CHECKED_SEQUENCES[0], 0))
    eager.run(inputs)  # what the network itself refuses is no fault of the export
    shapes = {name: dict.fromkeys(model.axes.get(name, {}), torch.export.Dim.DYNAMIC) for name in inputs}
    try:
        # Without "oblivious", a size of one is taken for another program than all larger ones.
        with quiet(), torch.no_grad(), torch.fx.experimental._config.patch(backed_size_oblivious=True):
            program = torch.export.export(network, (), inputs, dynamic_shapes=shapes)
            found = [[*key, count] for key, count in sorted(operators(program.graph_module).items())]
            if plan.device == "cpu":
                look_up_eagerly(program.graph_module)
            settings = {**_SETTINGS, "aot_inductor.metadata": {_OPERATORS: json.dumps(found)}}
            torch._inductor.aoti_compile_and_package(program, package_path=str(path), inductor_configs=settings)
    except Exception as error:  # the exporter and the compiler wrap whatever the network and their own passes raise
        raise ModelError(
            f"{model.name} cannot be compiled ahead of time: {first_line(error)}.", "Run it with mode=default, or with engine=pytorch."
        ) from error


def _compared(model: Model, plan: Plan, session: AotSession, eager: TorchSession) -> float:
    """The largest relative error of an output beside the network's, over several sizes."""
    worst, allowed = 0.0, _ERROR.get(plan.precision, _ERROR_16)
    for batch, sequence in sizes(model):
        sample = model.example(batch, sequence, batch)
        expected, actual = eager(sample), session(sample)
        error = max(relative(actual[name], expected[name]) for name in model.outputs)
        if not error <= allowed:
            raise ModelError(
                f"{model.name} compiled ahead of time differs from itself by {error:.2g} at batch {batch}, at most {allowed:g} was "
                "expected.",
                "Look for an operator that draws random numbers or depends on the batch, or run it with mode=default.",
            )
        worst = max(worst, error)
    return worst
