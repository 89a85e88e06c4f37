"""An intent as a Python program against a version's own builder API."""

from __future__ import annotations

from collections.abc import Iterator

from accel_helpers.compilation.commands._intent import USUAL_LEVEL, VERSIONS, Intent, commented, notes, typed

_CALIBRATOR = '''
class Ranges(trt.IInt8EntropyCalibrator2):
    """Reads the ranges that an earlier calibration wrote; has no samples of its own."""

    def __init__(self) -> None:
        trt.IInt8EntropyCalibrator2.__init__(self)

    def get_batch_size(self) -> int:
        return 1

    def get_batch(self, names):  # type: ignore[no-untyped-def]
        return None

    def read_calibration_cache(self) -> bytes:
        return Path({cache!r}).read_bytes()

    def write_calibration_cache(self, cache):  # type: ignore[no-untyped-def]
        pass


'''


def builder_code(intent: Intent, version: str) -> str:
    """A whole program: reads the ONNX file, builds, writes the engine file; ends with the parser's errors where there are any."""
    module = "tensorrt_rtx" if version == "rtx" else "tensorrt"
    calibrated = bool(intent.calibration_cache) and not typed(intent, version)
    lines = [
        "logger = trt.Logger(trt.Logger.WARNING)",
        "builder = trt.Builder(logger)",
        f"network = builder.create_network({_network(intent, version)})",
        "parser = trt.OnnxParser(network, logger)",
        f"if not parser.parse_from_file({intent.onnx!r}):",
        '    raise SystemExit("\\n".join(parser.get_error(place).desc() for place in range(parser.num_errors)))',
        "config = builder.create_builder_config()",
        *_profiles(intent, calibrated),
        *_types(intent, version, calibrated),
        *_options(intent, version),
        "engine = builder.build_serialized_network(network, config)",
        "if engine is None:",
        '    raise SystemExit("TensorRT built no engine; what it logged says why.")',
        f"Path({intent.engine!r}).write_bytes(engine)",
    ]
    if cached := _cached(intent, version):
        lines.append(f"Path({cached!r}).write_bytes(config.get_timing_cache().serialize())")
    head = commented([f"Builds {intent.engine} with {VERSIONS[version]}.", *notes(intent, version)])
    imports = f"from pathlib import Path\n\nimport {module} as trt\n\n"
    calibrator = _CALIBRATOR.format(cache=intent.calibration_cache) if calibrated else ""
    return head + imports + calibrator + "\n".join(lines) + "\n"


def _network(intent: Intent, version: str) -> str:
    if version == "8":
        return "1 << int(trt.NetworkDefinitionCreationFlag.EXPLICIT_BATCH)"
    if version == "10" and typed(intent, version):
        return "1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)"
    return "0"


def _profiles(intent: Intent, calibrated: bool) -> Iterator[str]:
    for shapes in intent.shapes:
        yield "profile = builder.create_optimization_profile()"
        for name, ends in shapes.items():
            yield f"profile.set_shape({name!r}, {', '.join(f'trt.Dims({list(sizes)})' for sizes in ends)})"
        yield "config.add_optimization_profile(profile)"
    if calibrated and intent.shapes:
        yield "config.set_calibration_profile(profile)"


def _types(intent: Intent, version: str, calibrated: bool) -> Iterator[str]:
    if intent.precision != "tf32":
        yield "config.clear_flag(trt.BuilderFlag.TF32)"
    if not typed(intent, version) and intent.precision not in ("fp32", "tf32"):
        yield f"config.set_flag(trt.BuilderFlag.{intent.precision.upper()})"
    if calibrated:
        yield "config.int8_calibrator = Ranges()"


def _options(intent: Intent, version: str) -> Iterator[str]:
    if version == "rtx" and intent.capabilities:
        yield f"config.num_compute_capabilities = {len(intent.capabilities)}"
        for place, one in enumerate(intent.capabilities):
            yield f"config.set_compute_capability(trt.ComputeCapability.SM{one.replace('.', '')}, {place})"
    if intent.workspace_bytes and version == "8":
        yield f"config.max_workspace_size = {intent.workspace_bytes}"
    elif intent.workspace_bytes:
        yield f"config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, {intent.workspace_bytes})"
    if intent.optimization_level != USUAL_LEVEL:
        yield f"config.builder_optimization_level = {intent.optimization_level}"
    if intent.refit:
        yield "config.set_flag(trt.BuilderFlag.REFIT)"
    if intent.weight_streaming:
        yield "config.set_flag(trt.BuilderFlag.WEIGHT_STREAMING)"
    if cached := _cached(intent, version):
        yield f"cache = Path({cached!r})"
        yield 'config.set_timing_cache(config.create_timing_cache(cache.read_bytes() if cache.exists() else b""), ignore_mismatch=False)'


def _cached(intent: Intent, version: str) -> str:
    """The timing cache where it does something: TensorRT-RTX ignores it, and asks for a GPU on the way."""
    return "" if version == "rtx" else intent.timing_cache
