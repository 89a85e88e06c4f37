"""Small graphs that TensorRT refuses, each for one reason, with the cure that the reason asks for.

Graphs are written in ONNX's text syntax, so that a reader sees what is wrong with them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from accel_helpers.compilation.builds import _remedies
from accel_helpers.compilation.builds._trial import Asked, Range
from accel_helpers.engines import _tensorrt_build

Remedy = Callable[[Path, Asked], tuple[Path, Asked]]
"""The refused graph and its settings -> those to try in their place; new files go beside the old one."""
ROWS: Mapping[str, Range] = {"x": ((1, 4), (2, 4), (8, 4))}
"""The profile of an input ``x`` of rows of four."""
RIGHT = Asked((ROWS,))
"""What a graph of an input ``x`` of rows of four builds with."""
_EYE = "1,0,0,0, 0,1,0,0, 0,0,1,0, 0,0,0,1"
_PRODUCT = f"(float[n,4] x) => (float[n,4] y) <float[4,4] w = {{{_EYE}}}> {{ [product] m = MatMul(x, w) y = Relu(m) }}"


@dataclass(frozen=True)
class Case:
    """A graph, what is asked of TensorRT, and the cure."""

    kind: str  # what the refusal must be explained as
    title: str  # what is wrong, for people
    graph: str  # from its inputs on, in ONNX's text syntax
    remedy: Remedy
    done: str  # what the remedy does, for people
    asked: Asked = RIGHT
    opset: int = 20
    spoil: Callable[[Path], Path] | None = None  # what makes the written graph a refused one, where its text does not
    foldable: bool = False  # whether the trouble is computed from constants alone, or read by nothing
    only: str = ""  # where it is refused: "rtx" in TensorRT-RTX alone, "no gpu" there too, on a machine without a GPU; empty anywhere

    def write(self, folder: Path) -> Path:
        """Write the refused graph into a folder."""
        path = _remedies.written(self.graph, folder / "model.onnx", self.opset)
        return self.spoil(path) if self.spoil else path


def _asked(kind: str, title: str, wrong: Asked, right: Asked, done: str, graph: str = _PRODUCT, only: str = "") -> Case:
    """A case whose graph is right, and what is asked is not."""
    return Case(kind, title, graph, lambda path, _: (path, right), done, wrong, only=only)


def _file(kind: str, title: str, spoil: Callable[[Path], Path], done: str) -> Case:
    """A case whose file is damaged after it was written."""
    again = lambda path, asked: (_remedies.written(_PRODUCT, path, 20), asked)  # noqa: E731
    return Case(kind, title, _PRODUCT, again, done, spoil=spoil)


def _row(*shapes: tuple[int, ...]) -> Asked:
    return Asked(({"x": (shapes[0], shapes[1], shapes[2])},))


PROFILES: tuple[Case, ...] = (
    _asked("no_profile", "an open batch and no profile", Asked(), RIGHT, "gave least, usual and greatest"),
    _asked("profile_rank", "three axes for an input of two", _row((1, 4, 1), (2, 4, 1), (8, 4, 1)), RIGHT, "gave two axes"),
    _asked("profile_order", "the usual size above the greatest", _row((1, 4), (8, 4), (2, 4)), RIGHT, "put the sizes in order"),
    _asked("profile_fixed", "three columns for an input of four", _row((1, 3), (2, 3), (8, 3)), RIGHT, "gave the fixed size"),
    _asked(
        "profile_fixed",
        "a profile for a graph without an open axis",
        RIGHT,
        Asked(),
        "left the profile off",
        "(float[2,4] x) => (float[2,4] y) { y = Relu(x) }",
    ),
    _asked("profile_missing", "a profile for an input that is not there", Asked(({"z": ROWS["x"]},)), RIGHT, "named the input"),
    _asked("profile_negative", "-1 for an open axis", _row((-1, 4), (2, 4), (8, 4)), RIGHT, "gave a size"),
    _asked(
        "profile_inconsistent",
        "two inputs of one batch with different sizes of it",
        Asked(({"x": ROWS["x"], "z": ((1, 4), (3, 4), (8, 4))},)),
        Asked(({"x": ROWS["x"], "z": ROWS["x"]},)),
        "gave both the same batch",
        "(float[n,4] x, float[n,4] z) => (float[n,4] y) { y = Add(x, z) }",
    ),
    _asked(
        "shape_input",
        "a shape that is an input",
        RIGHT,
        replace(RIGHT, values={"s": ((1, 4), (2, 4), (8, 4))}),
        "gave the shape's values in the profile",
        "(float[n,4] x, int64[2] s) => (float[a,b] y) { y = Reshape(x, s) }",
    ),
)
"""Refusals for the sizes that were asked for."""
SETTINGS: tuple[Case, ...] = (
    _asked("workspace", "one KiB of workspace", replace(RIGHT, workspace_bytes=1024), RIGHT, "left TensorRT its own limit"),
    _asked(
        "needs_driver", "the GPU of a machine without one", replace(RIGHT, capability="CURRENT"), RIGHT, "named a capability", only="no gpu"
    ),
    _asked("unknown_capability", "a capability that is not compiled for", replace(RIGHT, capability="9.0"), RIGHT, "chose 8.9", only="rtx"),
    _asked("needs_gpu", "REFIT without a GPU", replace(RIGHT, flags=("REFIT",)), RIGHT, "left the flag off", only="no gpu"),
    _asked(
        "needs_library",
        "VERSION_COMPATIBLE without the lean runtime",
        replace(RIGHT, flags=("VERSION_COMPATIBLE",)),
        RIGHT,
        "left it off",
    ),
    Case(
        "turing_fp32",
        "FP32 products for Turing",
        _PRODUCT,
        _remedies.halved,
        "converted the graph to FP16",
        replace(RIGHT, capability="7.5"),
        only="rtx",
    ),
    _asked(
        "type_of_capability",
        "BF16 products for Turing",
        replace(RIGHT, capability="7.5"),
        replace(RIGHT, capability="8.0"),
        "built for 8.0",
        "(bfloat16[n,4] x) => (bfloat16[n,4] y) { t = Transpose(x) m = MatMul(x, t) y = MatMul(m, x) }",
        only="rtx",
    ),
)
"""Refusals for how, or for which GPU, it should be built."""
FILES: tuple[Case, ...] = (
    _file("weights_missing", "a graph without its .data file", _remedies.without_weights, "exported it again"),
    _file("weights_short", "half of the .data file", _remedies.half_the_weights, "exported it again"),
    _file("broken_file", "half of the .onnx file", _remedies.half_the_file, "exported it again"),
    _file("empty_graph", "an empty .onnx file", _remedies.emptied, "exported it again"),
    _file("no_file", "no .onnx file", _remedies.removed, "exported it again"),
)
"""Refusals for what is on the disk."""
QUANTIZED: tuple[Case, ...] = (
    Case(
        "zero_points",
        "ONNX Runtime's static INT8 (U8S8)",
        _PRODUCT,
        _remedies.signed_pairs,
        "quantized symmetrically",
        spoil=_remedies.u8s8,
    ),
    Case(
        "integer_bias",
        "ONNX Runtime's static INT8 (S8S8), bias in INT32",
        f"(float[n,4] x) => (float[n,4] y) <float[4,4] w = {{{_EYE}}}, float[4] b = {{1,2,3,4}}> {{ [product] y = Gemm(x, w, b) }}",
        _remedies.signed_pairs,
        "left the bias in floating point",
        spoil=_remedies.s8s8,
    ),
    Case(
        "integer_operators",
        "ONNX Runtime's dynamic INT8",
        _PRODUCT,
        _remedies.signed_pairs,
        "quantized symmetrically",
        spoil=_remedies.dynamic,
    ),
    Case(
        "runtime_fused",
        "a graph that ONNX Runtime optimized",
        f"(float[n,4] x) => (float[n,4] y) <float[4,4] w = {{{_EYE}}}, float half = {{0.5}}> "
        "{ [product] m = MatMul(x, w) y = Mul(m, half) }",
        _remedies.as_exported,
        "took the exported graph",
        spoil=_remedies.fused,
    ),
)
"""Graphs that another runtime rewrote for itself."""
GRAPHS: tuple[Case, ...] = (
    Case(
        "shape_type",
        "factors of a Resize as an input",
        "(float[1,1,4,4] x, float[4] s) => (float[1,1,h,w] y) { [resize] y = Resize(x, , s) }",
        _remedies.constant({"s": (1.0, 1.0, 2.0, 2.0)}),
        "made the factors constants",
        Asked(),
    ),
    Case(
        "not_constant",
        "the axis of a mean is computed",
        "(float[n,4] x) => (float[n,1] y) { s = Shape(x) r = Size(s) one = Constant<value_int=1>() l = Sub(r, one) "
        "z = Constant<value_ints=[0]>() a = Unsqueeze(l, z) [mean] y = ReduceMean(x, a) }",
        _remedies.folded,
        "folded constants (onnxsim)",
        foldable=True,
    ),
    Case(
        "unsupported_operator",
        "Col2Im (torch.nn.Fold)",
        "(float[n,4,9] x) => (float[n,1,4,4] y) <int64[2] image = {4,4}, int64[2] block = {2,2}> { [fold] y = Col2Im(x, image, block) }",
        _remedies.replaced("Col2Im"),
        "replaced it by a transposed convolution",
        _row((1, 4, 9), (2, 4, 9), (8, 4, 9)),
    ),
    Case(
        "unsupported_operator",
        "DFT (torch.fft)",
        "(float[n,16] x) => (float[n,9,2] y) <int64[1] last = {-1}, int64 axis = {-2}> "
        "{ u = Unsqueeze(x, last) [spectrum] y = DFT<onesided=1>(u, , axis) }",
        _remedies.replaced("DFT"),
        "replaced it by products with sines",
        _row((1, 16), (2, 16), (8, 16)),
    ),
    Case(
        "custom_operator",
        "an operator of a domain of its own",
        "(float[n,4] x) => (float[n,4] y) { [squared] y = my.ops.SquaredRelu(x) }",
        _remedies.replaced_by_function("SquaredRelu"),
        "wrote its body in standard operators",
    ),
    Case(
        "domain_ignored",
        "an operator of its own with a standard name",
        "(float[n,4] x) => (float[n,4] y) { [own] y = my.ops.Relu(x) }",
        _remedies.replaced_by_function("Relu"),
        "wrote its body in standard operators",
    ),
    Case(
        "operator_setting",
        "AveragePool with dilations",
        "(float[n,3,8,8] x) => (float[n,3,6,6] y) { [pool] y = AveragePool<kernel_shape=[2,2], dilations=[2,2]>(x) }",
        _remedies.replaced("AveragePool"),
        "replaced it by a convolution",
        _row((1, 3, 8, 8), (2, 3, 8, 8), (8, 3, 8, 8)),
    ),
    Case(
        "extra_outputs",
        "LayerNormalization with a mean that nothing reads",
        "(float[n,4] x) => (float[n,4] y) <float[4] s = {1,1,1,1}> { [norm] y, mean, deviation = LayerNormalization(x, s) }",
        _remedies.without_unread_outputs,
        "removed the outputs that nothing reads",
    ),
    Case(
        "attention_kernel",
        "Attention as one operator (opset 23)",
        "(float[2,3,4,8] q, float[2,3,4,8] k, float[2,3,4,8] v) => (float[2,3,4,8] y) { [attention] y = Attention(q, k, v) }",
        _remedies.replaced_by_its_definition,
        "wrote out its definition",
        Asked(),
        opset=23,
    ),
    Case(
        "mixed_types",
        "FP32 scales left in an FP16 graph",
        "(float16[n,4] x) => (float16[n,4] y) <float[4] s = {1,2,3,4}> { [norm] y = LayerNormalization(x, s) }",
        _remedies.halved,
        "converted the scales too",
    ),
    Case(
        "data_type",
        "a table of INT16",
        "(float[n,4] x) => (float[n,4] y) <int16[4] t = {1,2,3,4}> { f = Cast<to=1>(t) y = Mul(x, f) }",
        _remedies.widened,
        "stored the table as INT32",
        foldable=True,
    ),
    Case(
        "data_type",
        "numbers that pass through text",
        "(float[n,4] x) => (float[n,4] y) { [text] s = Cast<to=8>(x) y = Cast<to=1>(s) }",
        _remedies.without_text,
        "removed the two Casts",
    ),
    Case(
        "shapes_disagree",
        "a transposed weight",
        "(float[n,4] x) => (float[n,3] y) <float[3,4] w = {1,2,3,4, 5,6,7,8, 9,10,11,12}> { [product] y = MatMul(x, w) }",
        _remedies.transposed,
        "transposed the weight",
    ),
)
"""Graphs that are right ONNX, the last one apart, and not TensorRT's."""
CASES = (*PROFILES, *SETTINGS, *FILES, *QUANTIZED, *GRAPHS)


def here() -> tuple[Case, ...]:
    """The cases that are refused on this machine: some are TensorRT-RTX's alone, and some want that no GPU answers."""
    rtx = _tensorrt_build.NAME == "tensorrt_rtx"
    gpu = bool(_tensorrt_build.here())
    return tuple(one for one in CASES if not one.only or (rtx and (one.only == "rtx" or not gpu)))
