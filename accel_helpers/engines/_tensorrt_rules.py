"""What TensorRT's messages mean: one rule for each kind of refusal, the telling ones before the general."""

from __future__ import annotations

from dataclasses import dataclass

NOISE = r"catchCudaError|logger passed into create\w+ differs"
"""Messages that follow from there being no driver, or from another logger in the process, and say nothing of the graph."""
UNKNOWN = (
    "Bisect the graph to the node that fails (polygraphy debug reduce), or choose another precision, simplifier=onnxsim or "
    "engine=onnx_runtime."
)
"""What to do about a message that no rule knows."""
REPLACE = "Write it in standard operators that TensorRT has, and compare the outputs, or choose engine=onnx_runtime."
_QDQ = "Quantize with scheme=static and symmetric=true, which writes signed pairs for TensorRT and leaves biases in floating point."
_PROFILE = "Give each open axis its least, usual and greatest size in that order: profiles=1x16/8x128/32x256."


@dataclass(frozen=True)
class Rule:
    """A pattern of a message, and what it means. ``cause`` may name the pattern's groups, ``{operator}`` and ``{who}``."""

    kind: str
    pattern: str
    cause: str
    cure: str
    operators: str = ""  # a pattern of the operators that it speaks of
    domain: str | None = None  # a pattern of their domain, where that decides
    weights: str = ""  # what is wrong with the tensor's file, where that decides: missing, short or type


RULES: tuple[Rule, ...] = (
    # optimization profiles
    Rule(
        "no_profile",
        "no optimization profile has been defined",
        "an input has an open axis, and no optimization profile says which sizes to build for",
        _PROFILE,
    ),
    Rule(
        "profile_rank",
        r"input tensor (?P<tensor>\S+) has (?P<rank>\d+) dimensions but profile \d+ has (?P<given>\d+)",
        "the profile gives input {tensor!r} {given} axes, and it has {rank}",
        "Give the profile one size for each axis of the input.",
    ),
    Rule(
        "profile_order",
        r"Invalid optimization profiles for input tensors (?P<tensor>\S+?),.*MIN<=OPT<=MAX",
        "the profile of input {tensor!r} falls somewhere: least, usual and greatest must not",
        _PROFILE,
    ),
    Rule(
        "profile_fixed",
        r"Dimension mismatch for tensor (?P<tensor>\S+) and profile \d+\. At dimension axis (?P<axis>\d+), "
        r"profile has min=(?P<least>\d+), opt=\d+, max=(?P<greatest>\d+) but tensor has (?P<fixed>\d+)",
        "axis {axis} of input {tensor!r} is fixed to {fixed} in the graph, and the profile asks for {least} to {greatest}",
        "Export the graph with that axis open, or give the profile the fixed size three times.",
    ),
    Rule(
        "profile_fixed",
        r"tensor (?P<tensor>\S+) has static dimensions that don't match k(?P<end>\w+) dimensions .*?"
        r"Input dimensions are (?P<fixed>\[[\d,]+\]) but profile dimensions are (?P<given>\[[\d,]+\])",
        "every axis of input {tensor!r} is fixed in the graph, to {fixed}, and the profile asks for {given}",
        "Export the graph with that axis open, or give the profile the fixed size three times.",
    ),
    Rule(
        "profile_missing",
        r"input tensor (?P<tensor>\S+) is missing dimensions in profile",
        "the profile holds no sizes for input {tensor!r}; a name that is no input of the graph is passed over silently",
        "Name every open input in the profile as the graph spells it.",
    ),
    Rule(
        "profile_inconsistent",
        r"(?P<end>k(?:MIN|OPT|MAX)) values (?:for profile \d+ violate shape constraints|are not self-consistent)",
        "the {end} sizes of the profile do not fit together: axes that the graph ties to one another differ",
        "Give inputs that share an axis the same size of it in each place of the profile.",
    ),
    Rule(
        "profile_negative",
        r"inconsistent with other shapes|std::all_of\(dims\.d",
        "a profile holds a negative size, or its three shapes have different numbers of axes",
        _PROFILE,
    ),
    Rule(
        "shape_input",
        r"missing values for shape input tensor (?P<tensor>\S+?)\. ",
        "input {tensor!r} is read as a shape, and the profile gives it no values",
        "Make the shape a constant of the graph, or give its least, usual and greatest values (set_shape_input).",
    ),
    Rule(
        "shape_type",
        r"Network input (?P<tensor>\S+) is a shape tensor and must have type Int32 or Int64\. Type is (?P<type>\w+)",
        "input {tensor!r} decides a shape and is {type}; a shape must be integers",
        "Compute sizes in INT64 in place of factors, or make them constants of the graph.",
    ),
    # quantized graphs of another runtime
    Rule(
        "zero_points",
        "zero point is not supported|unsupported input type of UINT8|does not support UINT8 types for intermediate",
        "{who} quantizes to unsigned bytes with a zero point, as ONNX Runtime does for x86; TensorRT's bytes are signed around zero",
        _QDQ,
        operators="(?:Deq|Q)uantizeLinear|Cast|",
    ),
    Rule(
        "integer_bias",
        "input has type Int32 but must have type FP8",
        "{who} reads a bias in 32-bit integers, as ONNX Runtime's quantizer writes it",
        _QDQ,
        operators="DequantizeLinear",
    ),
    Rule(
        "integer_operators",
        "",
        "{who} is of ONNX Runtime's integer arithmetic (dynamic INT8 or QLinear operators), which TensorRT lacks",
        _QDQ,
        operators="DynamicQuantizeLinear|MatMulInteger|ConvInteger|QLinear.+",
    ),
    # operators
    Rule(
        "runtime_fused",
        "Plugin not found",
        "{who} was fused by ONNX Runtime into an operator of its own",
        "Give TensorRT the graph from before ONNX Runtime optimized it.",
        domain=r"com\.microsoft.*|com\.ms\..*",
    ),
    Rule(
        "custom_operator",
        "Plugin not found",
        "{who} is of a domain of its own, and no plugin of TensorRT's implements it",
        "Write it in standard operators and compare the outputs, or load a plugin library that implements it.",
        domain=r"(?!ai\.onnx).+",
    ),
    Rule(
        "unsupported_operator",
        r"Plugin not found|plugin (?:creator .*)?was not found in (?:the )?plugin registry|failed to load \w+ plugin|"
        r"\(check\w+\): UNSUPPORTED_NODE: false$|^false$",
        "{who} is a standard operator that TensorRT lacks",
        REPLACE,
    ),
    Rule(
        "unsupported_operator",
        "has no runners that implement",
        "{who} is an operator that TensorRT reads and has no kernel for",
        REPLACE,
    ),
    Rule(
        "attention_kernel",
        r"CHECK\(composite_op->is_decomposable\(\)\)",
        "no kernel fits an Attention operator (opset 23) of these shapes and types, and TensorRT does not take it apart by itself",
        "Export with an opset before 23, which writes attention as MatMul, Softmax and MatMul.",
    ),
    Rule(
        "not_constant",
        r"must resolve to a build-time constant|axis is not a constant|must be an initializer|as an initializer|not an initializer",
        "{who} takes a setting from a tensor that the graph computes, and TensorRT wants a constant",
        "Fold the constants of the graph: simplifier=onnxsim or onnxslim.",
    ),
    Rule(
        "extra_outputs",
        "mode than 1 outputs|nodes with one output",
        "{who} declares more outputs than TensorRT gives",
        "Remove the outputs that nothing reads; where they are read, compute them from standard operators.",
    ),
    # types
    Rule(
        "mixed_types",
        r"must have (?:the )?(?:same|identical)(?: input)? types|must be of same type",
        "{who} reads tensors of two types, such as FP16 values and FP32 weights, and a strongly typed network casts nothing",
        "Convert its weights with the rest of the graph, or put a Cast before it.",
    ),
    Rule(
        "type_of_capability",
        r"for target\(s\) (?P<target>[\w, ]+), because the model contains HW-specific datatypes: (?P<types>[^.]+)",
        "the compute capability that is built for ({target}) has no {types}",
        "Build for a GPU that has the type (BF16 from 8.0, FP8 from 8.9 on), or choose precision=fp16 or int8.",
    ),
    Rule(
        "turing_fp32",
        r"for Turing \(SM75\): FP32 GEMM is not supported",
        "TensorRT-RTX multiplies no FP32 matrices on compute capability 7.5 (Turing), as {who} needs",
        "Choose precision=fp16, or build for compute capability 8.0 or newer.",
    ),
    Rule(
        "weights_missing",
        r"Failed to open file: (?P<tensor>\S+)",
        "the file that holds the graph's weights is not beside it: {tensor}",
        "Move the .onnx file and its .data file together, or export the model again.",
    ),
    Rule(
        "weights_missing",
        r"Failed to import initializer: (?P<tensor>\S+)\s*$",
        "the file that holds {tensor!r} is not beside the graph",
        "Move the .onnx file and its .data file together, or export the model again.",
        weights="missing",
    ),
    Rule(
        "weights_short",
        r"out of range for file: (?P<tensor>\S+)",
        "the file that holds the graph's weights is shorter than the graph says: {tensor}",
        "Copy the .data file again, or export the model again.",
    ),
    Rule(
        "weights_short",
        r"Failed to import initializer: (?P<tensor>\S+)\s*$",
        "the file that holds {tensor!r} is shorter than the graph says",
        "Copy the .data file again, or export the model again.",
        weights="short",
    ),
    Rule(
        "data_type",
        r"Failed to import initializer: (?P<tensor>\S+)\s*$",
        "{tensor!r} is of a type that TensorRT lacks, such as INT16 or UINT32",
        "Store it as INT32, INT64 or a float, or fold what is computed from it: simplifier=onnxsim.",
        weights="type",
    ),
    Rule(
        "data_type",
        "Failed to convert ONNX dat[ae] type|Unsupported data type (?:for|in)|has datatype (?:FP4|FP8|Int4) but is not|"
        "requires inputs with type|input has type .* but must have type|UNSUPPORTED_NODE_DATATYPE|Found unsupported input type",
        "an input or {who} is of a type that TensorRT lacks there, such as STRING, INT16 or unsigned bytes",
        "Do that part outside the graph, or use INT32, INT64 or a float for it.",
    ),
    Rule(
        "operator_setting",
        r"(?:UNSUPPORTED_NODE\w*|INVALID_NODE): .*?(?P<setting>[^\s\":][^\":]*(?:support|require)[^\"]*?)[.\"!]*$",
        "{who} is set in a way that TensorRT lacks: {setting}",
        REPLACE,
    ),
    # files
    Rule(
        "broken_file",
        "MODEL_DESERIALIZE_FAILED",
        "the file is no ONNX graph, or only a part of one",
        "Copy it again, or export the model again.",
    ),
    Rule(
        "empty_graph",
        "Network must have at least one output",
        "the file is empty, or a graph without outputs",
        "Copy it again, or export the model again with its outputs named.",
    ),
    Rule(
        "no_file",
        "Input file cannot be found, or is not a regular file: (?P<tensor>.+)",
        "there is no file {tensor}",
        "Correct the path, or export the model again.",
    ),
    Rule(
        "shapes_disagree",
        r"(?P<said>[^\n:]*\bmust match\b)|reshape changes volume|dimensions not compatible",
        "the shapes that meet at {who} do not fit, whatever the sizes of the inputs",
        "Check the graph with onnx.checker and full shape inference, and export it again.",
    ),
    # the machine and the settings
    Rule(
        "workspace",
        "within workspace limit|requires workspace memory greater than 0",
        "no kernel fits the scratch memory that the build may plan with",
        "Raise workspace (in MiB), or leave it at 0 for TensorRT's own limit.",
    ),
    Rule(
        "needs_driver",
        r"generateForCurrent",
        "it was asked to build for the GPU of this machine (CURRENT), and no driver answers",
        "Name the compute capability of the GPU that will run the engine, or build where that GPU is.",
    ),
    Rule(
        "needs_library",
        r"Unable to load library: (?P<library>[^\s:]+)",
        "a version-compatible engine carries the lean runtime, and {library} is not installed",
        "Build without VERSION_COMPATIBLE, or install TensorRT's lean runtime.",
    ),
    Rule(
        "needs_gpu",
        r"CHECK\(status == CUDA_SUCCESS\)",
        "an engine whose weights can all be replaced (REFIT, STRIP_PLAN) is compiled on the GPU, and none answers",
        "Build where the GPU is, or without refit.",
    ),
    Rule(
        "unknown_capability",
        r"ComputeCapab\w* has no attribute|has no attribute 'SM(?P<capability>\d+)'",
        "TensorRT-RTX does not compile for that compute capability",
        "Choose 7.5, 8.0, 8.6, 8.9, 12.0 or 12.1; data-centre GPUs such as the H200 (9.0) need TensorRT itself.",
    ),
)
