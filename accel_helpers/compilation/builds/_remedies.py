"""What spoils a small graph, and what cures it: each takes a file and writes one beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from accel_helpers.compilation.builds import replacing
from accel_helpers.compilation.builds._sampled import sample
from accel_helpers.compilation.builds._trial import Asked
from accel_helpers.compilation.graphs import _onnx_session
from accel_helpers.engine import Array

Remedied = tuple[Path, Asked]
_DATA = "model.onnx.data"
SQUARED = '<domain: "my.ops", opset_import: ["" : 20]> SquaredRelu (x) => (y) { r = Relu(x) y = Mul(r, r) }'
"""The body of the custom operator among the cases."""


def written(graph: str, path: Path, opset: int) -> Path:
    """Write a graph in ONNX's text syntax, from its inputs on, as an ONNX file."""
    import onnx

    head = f'<ir_version: 10, opset_import: ["" : {opset}, "my.ops" : 1]> graph '
    onnx.save(onnx.parser.parse_model(head + graph), path)
    return path


def _edited(path: Path, edit: Callable[[Any], Any]) -> Path:
    """Write what ``edit`` makes of the graph, or has made of it in place, beside it."""
    import onnx

    loaded = onnx.load(path)
    out = path.with_name(f"cured_{path.name}")
    onnx.save(edit(loaded) or loaded, out)
    return out


# what spoils a file


def without_weights(path: Path) -> Path:
    """The graph without its weights, which it kept in a file of their own."""
    _apart(path).unlink()
    return path


def half_the_weights(path: Path) -> Path:
    """The graph with half of its weights' file."""
    return _halved(path, _apart(path))


def half_the_file(path: Path) -> Path:
    """Half of the graph's file."""
    return _halved(path, path)


def emptied(path: Path) -> Path:
    """An empty file."""
    path.write_bytes(b"")
    return path


def removed(path: Path) -> Path:
    """No file."""
    path.unlink()
    return path


def _apart(path: Path) -> Path:
    import onnx

    loaded = onnx.load(path)
    for one in loaded.graph.initializer:
        one.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(one), one.name))  # raw bytes, which alone can lie apart
    onnx.save(loaded, path, save_as_external_data=True, location=_DATA, size_threshold=0)
    return path.with_name(_DATA)


def _halved(path: Path, damaged: Path) -> Path:
    content = damaged.read_bytes()
    damaged.write_bytes(content[: len(content) // 2])
    return path


# what another runtime makes of a graph


def _batches(path: Path) -> Callable[[], list[dict[str, Array]]]:
    return lambda: [sample(path, Asked(), seed) for seed in range(4)]


def _quantized(path: Path, scheme: str, symmetric: bool = False) -> Path:
    """The graph in integers, as the package's ONNX Runtime engine makes them; the float graph stays as ``float.onnx``."""
    import onnx

    from accel_helpers.engines import _onnx_quantize
    from accel_helpers.records import Quantization

    source = path.rename(path.with_name("float.onnx"))
    quantization = Quantization(scheme, symmetric=symmetric)
    static = scheme == "static"
    onnx.save(
        _onnx_quantize.static(source, quantization, _batches(source)) if static else _onnx_quantize.dynamic(source, quantization), path
    )
    return path


def u8s8(path: Path) -> Path:
    """Static INT8 with unsigned activations."""
    return _quantized(path, "static")


def s8s8(path: Path) -> Path:
    """Static INT8 with signed activations."""
    return _quantized(path, "static", symmetric=True)


def dynamic(path: Path) -> Path:
    """Dynamic INT8."""
    return _quantized(path, "dynamic")


def fused(path: Path) -> Path:
    """The graph as ONNX Runtime runs it; the exported one stays as ``float.onnx``."""
    source = path.rename(path.with_name("float.onnx"))
    _onnx_session.opened(source, "EXTENDED", {"optimized_model_filepath": str(path)})
    return path


# what cures


def as_exported(path: Path, asked: Asked) -> Remedied:
    """The graph from before another runtime rewrote it."""
    return path.with_name("float.onnx"), asked


def signed_pairs(path: Path, asked: Asked) -> Remedied:
    """The float graph with signed pairs of QuantizeLinear and DequantizeLinear, as the package's TensorRT engine writes them."""
    import onnx

    from accel_helpers.engines import _explicit_qdq
    from accel_helpers.records import Quantization

    source, out = path.with_name("float.onnx"), path.with_name("cured_model.onnx")
    onnx.save(_explicit_qdq.explicit(source, "int8", Quantization("static", symmetric=True), _batches(source))[0], out)
    return out, asked


def folded(path: Path, asked: Asked) -> Remedied:
    """The graph after onnxsim."""
    import onnxsim

    return _edited(path, lambda loaded: onnxsim.simplify(loaded)[0]), asked


def halved(path: Path, asked: Asked) -> Remedied:
    """Every FP32 weight, input and output in FP16."""

    def edit(loaded: Any) -> Any:
        from onnxruntime.transformers.float16 import convert_float_to_float16

        return convert_float_to_float16(loaded)

    return _edited(path, edit), asked


def constant(values: Mapping[str, Sequence[float]]) -> Callable[[Path, Asked], Remedied]:
    """Named inputs as FP32 constants."""

    def edit(loaded: Any) -> None:
        import onnx

        kept = [one for one in loaded.graph.input if one.name not in values]
        del loaded.graph.input[:]
        loaded.graph.input.extend(kept)
        arrays = [onnx.numpy_helper.from_array(np.array(value, np.float32), name) for name, value in values.items()]
        loaded.graph.initializer.extend(arrays)

    return lambda path, asked: (_edited(path, edit), asked)


def replaced(operator: str) -> Callable[[Path, Asked], Remedied]:
    """An operator replaced by standard ones, outputs compared."""

    def remedy(path: Path, asked: Asked) -> Remedied:
        out = path.with_name("cured_model.onnx")
        replacing.replace_operator(path, operator, out, sample(path, asked))
        return out, asked

    return remedy


def replaced_by_function(operator: str) -> Callable[[Path, Asked], Remedied]:
    """A custom operator replaced by :data:`SQUARED`, compared with the same function in NumPy."""

    def remedy(path: Path, asked: Asked) -> Remedied:
        out = path.with_name("cured_model.onnx")
        squared = lambda inputs: {"y": np.maximum(inputs["x"], 0) ** 2}  # noqa: E731
        replacing.replace_operator(path, operator, out, sample(path, asked), SQUARED, squared)
        return out, asked

    return remedy


def replaced_by_its_definition(path: Path, asked: Asked) -> Remedied:
    """Attention written out as the ONNX standard defines it."""
    from onnx import inliner

    return _edited(path, lambda loaded: inliner.inline_selected_functions(loaded, [("", "Attention")], inline_schema_functions=True)), asked


def without_unread_outputs(path: Path, asked: Asked) -> Remedied:
    """Each node without the last outputs that nothing reads."""

    def edit(loaded: Any) -> None:
        read = {name for node in loaded.graph.node for name in node.input} | {one.name for one in loaded.graph.output}
        for node in loaded.graph.node:
            while len(node.output) > 1 and node.output[-1] not in read:
                node.output.pop()

    return _edited(path, edit), asked


def widened(path: Path, asked: Asked) -> Remedied:
    """Constants of INT16 as INT32."""

    def edit(loaded: Any) -> None:
        import onnx

        for one in loaded.graph.initializer:
            if one.data_type == onnx.TensorProto.INT16:
                one.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(one).astype(np.int32), one.name))

    return _edited(path, edit), asked


def without_text(path: Path, asked: Asked) -> Remedied:
    """An Identity in place of a Cast to text and one back."""

    def edit(loaded: Any) -> None:
        import onnx

        graph = loaded.graph
        first, last = graph.node[0], graph.node[-1]
        identity = onnx.helper.make_node("Identity", list(first.input), list(last.output), "identity")
        del graph.node[:]
        graph.node.append(identity)

    return _edited(path, edit), asked


def transposed(path: Path, asked: Asked) -> Remedied:
    """The weight the other way round."""

    def edit(loaded: Any) -> None:
        import onnx

        one = loaded.graph.initializer[0]
        one.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(one).T.copy(), one.name))

    return _edited(path, edit), asked
