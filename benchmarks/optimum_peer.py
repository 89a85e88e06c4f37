"""Hugging Face Optimum's export of the built-in text encoder beside this project's: the graphs, their outputs against PyTorch, their speed.

No release of Optimum works with the transformers that this project uses, so the script gives it a virtual environment of its own and runs
its command line there, offline. Both files then run in ONNX Runtime as a reader's own models, in one interleaved run. Writes
``benchmarks/results/optimum-<hardware>.json`` with the environment, both graphs and every record.

    python benchmarks/optimum_peer.py [seconds per plan [folder for Optimum's environment, 1.4 GB]]

To bring a model that Optimum exported into the workbook, export it in such an environment and name the file wherever a model is asked for::

    optimum-cli export onnx --model FOLDER --task feature-extraction out/
    accel run model=out/model.onnx engine=onnx_runtime

Its open axes, batch and sequence, are read from the file. Before anything is measured it is run at several sizes and each sample of a batch
is compared with the same sample alone; a file whose batch is fixed is refused with the node that fixes it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from accel_helpers import bench, charts, environment, models
from accel_helpers.config import RunConfig
from accel_helpers.device import store_root
from accel_helpers.engines import _onnx_check, _onnx_export, _onnx_simplify
from accel_helpers.errors import ModelError
from accel_helpers.models import Model, text_encoder

RESULTS = Path(__file__).parent / "results"
PINNED = (
    "optimum-onnx==0.1.0",
    "optimum==2.1.0",
    "transformers==4.57.6",
    "huggingface_hub==0.36.2",
    "tokenizers==0.22.2",
    "torch==2.13.0",
    "onnx~=1.23",
    "onnxruntime~=1.32.0",
)
OUTPUT = "last_hidden_state"
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}


def encoder() -> Model:
    """The text encoder without its head, with the inputs that Optimum's export reads: three (batch, sequence) int64."""
    base = models.get(text_encoder.NAME)
    both = {0: "batch", 1: "sequence"}

    def example(batch: int, sequence: int, seed: int) -> dict[str, Any]:
        inputs = base.example(batch, sequence, seed)
        return {**inputs, "token_type_ids": np.zeros_like(inputs["input_ids"])}

    return dataclasses.replace(
        base,
        name="the text encoder without its head",
        example=example,
        axes=dict.fromkeys(("input_ids", "attention_mask", "token_type_ids", OUTPUT), both),
        outputs=(OUTPUT,),
        fingerprint=hashlib.sha256(f"{base.fingerprint} {OUTPUT}".encode()).hexdigest(),
        build=build,
        dataset=None,
        metric=None,
    )


def build() -> Any:
    """The network of :func:`encoder`."""
    import torch

    class Hidden(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bert = text_encoder.encoder()

        def forward(self, input_ids: Any, attention_mask: Any, token_type_ids: Any) -> Any:
            return self.bert(input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids).last_hidden_state

    return Hidden().eval()


def installed(folder: Path) -> Path:
    """The ``bin`` of Optimum's environment in ``folder``, made where it is not there yet."""
    tools = folder / ("Scripts" if os.name == "nt" else "bin")
    done = folder / "pinned.txt"
    if not done.is_file() or done.read_text() != "\n".join(PINNED):
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        subprocess.run([tools / "python", "-m", "pip", "install", "--quiet", *PINNED], check=True)
        done.write_text("\n".join(PINNED))
    return tools


def exported_by_optimum(tools: Path, folder: Path) -> tuple[Path, list[str]]:
    """Optimum's ONNX file of the encoder's weights, and the versions that wrote it."""
    weights, out = folder / "weights", folder / "optimum"
    text_encoder.encoder().save_pretrained(weights, safe_serialization=True)
    command = [tools / "optimum-cli", "export", "onnx", "--model", weights, "--task", "feature-extraction", out]
    subprocess.run(command, check=True, env={**os.environ, **OFFLINE}, stdout=subprocess.DEVNULL)
    listed = subprocess.run([tools / "python", "-m", "pip", "freeze"], check=True, capture_output=True, text=True)
    return out / "model.onnx", listed.stdout.split()


def described(model: Model, path: Path) -> dict[str, Any]:
    """A file's operators, opset, open axes and bytes, its error against PyTorch, and what the checks of a reader's own model say of it."""
    import onnx
    import torch

    graph = onnx.load(path)
    network = model.build()

    def answer(sample: dict[str, Any]) -> dict[str, Any]:
        with torch.inference_mode():
            return {OUTPUT: network(**{name: torch.from_numpy(array) for name, array in sample.items()}).numpy()}

    own: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        try:
            own = {"accepted": _onnx_export.export(models.get(str(path)), Path(folder))}
        except ModelError as error:
            own = {"refused": str(error)}
    operators = _onnx_simplify.operators(graph)
    values = (*graph.graph.input, *graph.graph.output)
    return {
        "nodes": sum(operators.values()),
        "operators": operators,
        "opset": _onnx_check.opset(path),
        "axes": {one.name: [dim.dim_param or dim.dim_value for dim in one.type.tensor_type.shape.dim] for one in values},
        "bytes": sum(file.stat().st_size for file in path.parent.glob(f"{path.name}*")),
        "worst_error": _onnx_check.compared(model, path, answer),
        "as_a_readers_model": own,
    }


def main() -> None:
    """Export both, compare, measure and keep."""
    given = dict(enumerate(sys.argv))
    seconds = float(given.get(1, 6.0))
    home = Path(given.get(2, store_root() / "peers" / "optimum")).resolve()
    work = home / "exported"
    (work / "own").mkdir(parents=True, exist_ok=True)
    model = encoder()
    _onnx_export.export(model, work / "own")
    theirs, versions = exported_by_optimum(installed(home / "environment"), work)
    files = {"own": work / "own" / _onnx_export.FILE, "optimum": theirs}
    facts = {name: described(model, path) for name, path in files.items()}
    for name, one in facts.items():
        print(f"{name}: {one['nodes']} nodes, opset {one['opset']}, error {one['worst_error']:.2g}, {', '.join(one['as_a_readers_model'])}")
    configs = [RunConfig(model=str(path), engine="onnx_runtime", threads=1, seconds=seconds) for path in files.values()]
    result = bench.compare(configs)
    print(charts.as_text(charts.table(result.measurements, result.verdicts), 200))
    RESULTS.mkdir(exist_ok=True)
    target = RESULTS / f"optimum-{result.measurements[0].environment.hardware}.json"
    kept = {
        "environment": environment.describe().to_dict(),
        "optimum": versions,
        "graphs": facts,
        "measurements": [one.to_dict() for one in result.measurements],
        "verdicts": [one.to_dict() for one in result.verdicts],
    }
    target.write_text(json.dumps(kept, indent=1))
    print(f"records: {target}")


if __name__ == "__main__":
    main()
