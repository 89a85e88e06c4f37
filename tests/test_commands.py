"""Commands for TensorRT 8, 10, 11 and RTX: nothing that a version removed, or has not yet, is printed for it."""

import ast
import itertools
import os
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from accel_helpers import environment
from accel_helpers.compilation.commands.fitting import PRECISIONS, VERSIONS, Intent, commands_for, installed_version, intent_of
from accel_helpers.config import RunConfig
from accel_helpers.errors import MissingPackageError, ModelError, ParameterError, UnknownNameError, UnsupportedError
from accel_helpers.records import Profile

TEXT = Intent(
    "model.onnx",
    "model.plan",
    {"input_ids": ("batch", "sequence"), "attention_mask": ("batch", "sequence")},
    (Profile((1, 8, 32), (16, 128, 256)),),
)
MORE = Profile((32, 32, 64), (16, 128, 256))
STUBS = Path(sys.prefix) / "stubs"

# What each version has no more, from docs.nvidia.com/deeplearning/tensorrt/latest/api/migration (8x-to-10x and 10x-to-11x, the pages on
# trtexec and on the Python API) and tensorrt-rtx/latest/inference-library (porting, timing-cache-migration).
GONE_IN_10 = ("--workspace", "--minTiming", "--buildOnly", "--explicitBatch", "--maxBatch", "--heuristic")
GONE_IN_10 += ("max_workspace_size", "min_timing_iterations", "build_engine(", "max_batch_size", "STRICT_TYPES", "execute_async_v2")
GONE_IN_11 = ("--fp16", "--bf16", "--int8", "--fp8", "--int4", "--best", "--calib", "--precisionConstraints", "--layerPrecisions")
GONE_IN_11 += ("FP16)", "BF16)", "INT8)", "FP8)", "EXPLICIT_BATCH", "int8_calibrator", "IInt8", "set_calibration_profile", "CONSTRAINTS")
GONE_IN_11 += ("--stronglyTyped", "STRONGLY_TYPED")  # accepted and ignored
NOT_IN_RTX = ("trtexec", "import tensorrt as", "timing_cache", "--timingCacheFile", "--load-timing-cache", "EntropyCalibrator")
NOT_IN_8 = ("BF16)", "--bf16", "WEIGHT_STREAMING", "--allowWeightStreaming", "STRONGLY_TYPED", "--stronglyTyped", "--profile=")
ONLY_RTX = ("tensorrt_rtx", "compute_capability", "omputeCapabilities", "--compute-capabilities", "POLYGRAPHY_USE_TENSORRT_RTX")
REMOVED = {
    "8": NOT_IN_8 + ONLY_RTX,
    "10": GONE_IN_10 + ONLY_RTX,
    "11": GONE_IN_10 + GONE_IN_11 + ONLY_RTX,
    "rtx": GONE_IN_10 + GONE_IN_11 + NOT_IN_RTX,
}

# The names in the bindings themselves: of tensorrt-bindings 8.6.1 and tensorrt-cu13-bindings 11.4.0, those that may be used here.
BUILDER = {"create_network", "create_builder_config", "create_optimization_profile", "build_serialized_network"}
CONFIG = {"add_optimization_profile", "clear_flag", "set_flag", "builder_optimization_level"}
CONFIG |= {"set_timing_cache", "create_timing_cache", "get_timing_cache"}
COMMON = (
    BUILDER
    | CONFIG
    | {"Logger", "Builder", "OnnxParser", "Dims", "BuilderFlag", "TF32", "REFIT", "WARNING", "NetworkDefinitionCreationFlag"}
)
COMMON |= {"parse_from_file", "get_error", "num_errors", "desc", "set_shape", "serialize"}
KNOWN = {
    "8": COMMON
    | {"EXPLICIT_BATCH", "max_workspace_size", "FP16", "INT8", "IInt8EntropyCalibrator2", "int8_calibrator", "set_calibration_profile"},
    "11": COMMON | {"set_memory_pool_limit", "MemoryPoolType", "WORKSPACE", "WEIGHT_STREAMING"},
}
OURS = {"join", "write_bytes", "read_bytes", "exists", "__init__"}


def intents():
    """Every combination of what can be asked for."""
    choices = itertools.product(PRECISIONS, (0, 2**31), ("", "t.cache"), (3, 5), (False, True), (False, True), ("", "c.cache"), (1, 2))
    for precision, workspace, cache, level, refit, streaming, calibration, profiles in choices:
        if calibration and precision != "int8":
            continue
        yield replace(
            TEXT,
            precision=precision,
            workspace_bytes=workspace,
            timing_cache=cache,
            optimization_level=level,
            refit=refit,
            weight_streaming=streaming,
            calibration_cache=calibration,
            profiles=(*TEXT.profiles, MORE)[:profiles],
            capabilities=("8.9",),
        )


def built(version):
    """Each intent that a version can build, with its commands."""
    found = []
    for intent in intents():
        try:
            found.append((intent, commands_for(intent, version)))
        except UnsupportedError:
            assert version == "8"
    return found


@pytest.fixture(scope="module")
def everything():
    return {version: built(version) for version in VERSIONS}


def texts(found):
    return (found.trtexec, found.python, found.polygraphy)


@pytest.mark.parametrize("version", list(VERSIONS))
def test_nothing_removed_is_printed(everything, version):
    assert len(everything[version]) > 100
    for _, found in everything[version]:
        for text, name in itertools.product((found.trtexec, found.python, found.polygraphy), REMOVED[version]):
            assert name not in text, (name, text)


def test_what_is_asked_for_is_printed(everything):
    """The other side of the table: each option is there, in the version's own words."""
    intent = replace(TEXT, precision="fp16", workspace_bytes=2**31, timing_cache="t.cache", optimization_level=5, refit=True)
    words = {
        "8": ("--fp16", "--workspace=2048", "FP16)", "max_workspace_size = 2147483648", "EXPLICIT_BATCH"),
        "10": ("--fp16", "--memPoolSize=workspace:2048", "FP16)", "set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, 2147483648)"),
        "11": ("--memPoolSize=workspace:2048", "must already hold the FP16 types", "set_memory_pool_limit"),
        "rtx": ("--refit", "must already hold the FP16 types", "set_memory_pool_limit", "no flag for the workspace limit"),
    }
    for version, wanted in words.items():
        found = commands_for(intent, version)
        assert all(word in found.trtexec + found.python for word in wanted), version
        assert "REFIT" in found.python
        assert "builder_optimization_level = 5" in found.python
        assert ("--timingCacheFile=t.cache" in found.trtexec) == (version != "rtx")
        assert "--optShapes=input_ids:8x128,attention_mask:8x128" in found.trtexec
    assert "--profile=1" in commands_for(replace(TEXT, profiles=(*TEXT.profiles, MORE)), "10").trtexec


@pytest.mark.parametrize("version", list(VERSIONS))
def test_tf32_runs_where_it_is_asked_for_and_nowhere_else(version):
    plain, tf32 = (commands_for(replace(TEXT, precision=precision), version) for precision in ("fp32", "tf32"))
    assert "clear_flag(trt.BuilderFlag.TF32)" in plain.python
    assert "TF32" not in tf32.python
    if version == "rtx":
        assert "turning TF32 off" in plain.trtexec
    else:
        assert ("--noTF32" in plain.trtexec, "--noTF32" in tf32.trtexec) == (True, False)
        assert ("--tf32" in plain.polygraphy, "--tf32" in tf32.polygraphy) == (False, True)


def test_typed_networks_say_what_the_file_must_hold():
    for version, precision in itertools.product(("11", "rtx"), PRECISIONS):
        found = commands_for(replace(TEXT, precision=precision), version)
        for text in (found.trtexec, found.python, found.polygraphy):
            assert "strongly typed: model.onnx must" in text
            assert ("engine=tensorrt" in text) == (precision not in ("fp32", "tf32"))
    streamed = commands_for(replace(TEXT, precision="fp16", weight_streaming=True), "10")
    assert "--stronglyTyped" in streamed.trtexec
    assert "--fp16" not in streamed.trtexec


def test_differences_speak_of_what_is_asked_for():
    plain = {one.what for one in commands_for(TEXT, "10").differences}
    assert not any("workspace" in what for what in plain)
    for one in commands_for(replace(TEXT, precision="int8", workspace_bytes=1, timing_cache="t", weight_streaming=True), "rtx").differences:
        assert one.why
        assert one.source
    assert any("--workspace=N" in one.what for one in commands_for(replace(TEXT, workspace_bytes=1), "11").differences)


@pytest.mark.parametrize(
    ("change", "version", "error", "message"),
    [
        ({"precision": "bf16"}, "8", UnsupportedError, "TensorRT 8.6 has no BF16"),
        ({"precision": "fp8"}, "8", UnsupportedError, "has no FP8"),
        ({"weight_streaming": True}, "8", UnsupportedError, "no weight streaming"),
        ({}, "9", UnknownNameError, "no TensorRT version '9'"),
        ({"precision": "int4"}, "10", ParameterError, "no TensorRT commands for precision=int4"),
        ({"optimization_level": 6}, "10", ParameterError, "out of range"),
        ({"calibration_cache": "c.cache"}, "10", ParameterError, "of no use to FP32"),
        ({"onnx": "a\nimport os"}, "10", ParameterError, "line break"),
        ({"profiles": (Profile((1, 2, 3)),)}, "10", ModelError, "nothing of the open axis 'sequence'"),
    ],
)
def test_nonsense_is_one_error(change, version, error, message):
    with pytest.raises(error, match=message):
        commands_for(replace(TEXT, **change), version)


def test_names_are_quoted_for_the_shell_and_for_python():
    found = commands_for(replace(TEXT, onnx="my model's.onnx", engine='a"b.plan'), "10")
    assert "--onnx=my model's.onnx" in words(found.trtexec)
    assert "my model's.onnx" in words(found.polygraphy)
    constants = {node.value for node in ast.walk(ast.parse(found.python)) if isinstance(node, ast.Constant)}
    assert {"my model's.onnx", 'a"b.plan'} <= constants


@pytest.mark.parametrize("version", list(VERSIONS))
def test_every_program_compiles_and_uses_known_names_alone(everything, version):
    for _, found in everything[version]:
        tree = ast.parse(found.python)
        compile(tree, "generated", "exec")
        used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        if version in KNOWN:
            assert used <= KNOWN[version] | OURS, used - KNOWN[version] - OURS


def cover(programs):
    """Of many programs a few that hold every line of all."""
    chosen, seen = [], set()
    for program in sorted(programs, key=len, reverse=True):
        if new := set(program.splitlines()) - seen:
            chosen.append(program)
            seen |= new
    return chosen


QUIET_STUBS = """[mypy]
strict = True

[mypy-tensorrt,tensorrt_bindings.*,tensorrt_libs]
ignore_errors = True
ignore_missing_imports = True
"""  # a few methods of the stubs are no Python (a parameter named ``in``)


@pytest.mark.skipif(not STUBS.exists(), reason="TensorRT's stubs are not there; make setup puts them there")
def test_programs_for_10_have_the_types_of_its_stubs(everything, tmp_path):
    programs = cover(found.python for _, found in everything["10"])
    assert len(programs) > 3
    for number, program in enumerate(programs):
        (tmp_path / f"program_{number}.py").write_text(program)
    wrong = programs[0].replace("BuilderFlag.TF32", "BuilderFlag.TF31").replace("set_flag(", "set_flag(1, ")
    (tmp_path / "wrong.py").write_text(wrong)
    (tmp_path / "mypy.ini").write_text(QUIET_STUBS)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--cache-dir=cache", *(one.name for one in tmp_path.glob("*.py"))],
        env={**os.environ, "MYPYPATH": str(STUBS)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    found = [line for line in done.stdout.splitlines() if line.startswith(("program_", "wrong"))]
    assert any("TF31" in line for line in found), done.stdout + done.stderr  # mypy read the stubs to their end
    assert [line for line in found if line.startswith("program_")] == []


# What TensorRT-RTX builds here, without a GPU


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A folder with a small FP32 text model as model.onnx: a table's rows, those that the mask leaves, a product."""
    folder = tmp_path_factory.mktemp("tiny")
    numbers = np.random.default_rng(0).normal(size=(64, 16)).astype(np.float32)
    tables = [onnx.numpy_helper.from_array(numbers, "table"), onnx.numpy_helper.from_array(numbers[:16], "weight")]
    tables.append(onnx.numpy_helper.from_array(np.array([2]), "last"))
    nodes = [
        onnx.helper.make_node("Gather", ["table", "input_ids"], ["rows"]),
        onnx.helper.make_node("Cast", ["attention_mask"], ["kept"], to=onnx.TensorProto.FLOAT),
        onnx.helper.make_node("Unsqueeze", ["kept", "last"], ["column"]),
        onnx.helper.make_node("Mul", ["rows", "column"], ["masked"]),
        onnx.helper.make_node("MatMul", ["masked", "weight"], ["answers"]),
    ]
    inputs = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.INT64, ["batch", "sequence"]) for name in TEXT.inputs]
    outputs = [onnx.helper.make_tensor_value_info("answers", onnx.TensorProto.FLOAT, ["batch", "sequence", 16])]
    graph = onnx.helper.make_graph(nodes, "tiny", inputs, outputs, tables)
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=10), folder / "model.onnx")
    return folder


def words(text):
    """What a shell makes of a command."""
    return shlex.split(text.replace("\\\n", " "), comments=True)


def run(arguments, folder, **changes):
    return subprocess.run(arguments, cwd=folder, env={**os.environ, **changes}, capture_output=True, text=True)


def test_programs_for_rtx_build(everything, tiny):
    programs = cover(found.python for intent, found in everything["rtx"] if not intent.refit and intent.precision == "fp32")
    assert programs
    for program in (*programs, commands_for(replace(TEXT, precision="tf32"), "rtx").python):
        (tiny / "model.plan").unlink(missing_ok=True)
        done = run([sys.executable, "-c", program], tiny)
        assert done.returncode == 0, done.stderr
        assert (tiny / "model.plan").read_bytes()[1:4] == b"trt"


def test_a_program_that_cannot_read_its_file_says_so(tiny):
    (tiny / "broken.onnx").write_bytes(b"not a graph")
    done = run([sys.executable, "-c", commands_for(replace(TEXT, onnx="broken.onnx"), "rtx").python], tiny)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert done.stderr.strip()


def test_polygraphy_builds_for_rtx(tiny):
    (tiny / "model.plan").unlink(missing_ok=True)
    setting, _, *rest = words(commands_for(replace(TEXT, workspace_bytes=2**30, capabilities=("8.9",)), "rtx").polygraphy)
    name, _, value = setting.partition("=")
    done = run([Path(sys.executable).parent / "polygraphy", *rest], tiny, **{name: value})
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tiny / "model.plan").read_bytes()[1:4] == b"trt"


@pytest.mark.parametrize("version", list(VERSIONS))
def test_polygraphy_knows_every_flag(everything, version, monkeypatch):
    from polygraphy import config
    from polygraphy.tools.convert.convert import Convert

    monkeypatch.setattr(config, "USE_TENSORRT_RTX", version == "rtx")
    tool = Convert()
    parser = tool.setup_parser()
    parser.allow_abbrev = False
    for text in cover(found.polygraphy for _, found in everything[version]):
        given = words(text)
        parser.parse_args(given[given.index("convert") + 1 :])


# From a configuration, and on this machine


def test_an_intent_from_a_configuration():
    config = RunConfig(model="tiny-attention", precision="fp16", profiles="1x16/8x32/16x64", workspace=64, optimization_level=4, refit=True)
    intent = intent_of(config, timing_cache="t.cache")
    assert intent.inputs == {"input_ids": ("batch", "sequence"), "attention_mask": ("batch", "sequence")}
    assert intent.shapes[0]["input_ids"] == ((1, 16), (8, 32), (16, 64))
    assert (intent.precision, intent.workspace_bytes, intent.optimization_level, intent.refit) == ("fp16", 64 * 2**20, 4, True)
    assert (intent.onnx, intent.engine) == ("tiny-attention.onnx", "tiny-attention.plan")
    image = intent_of(RunConfig(model="tiny-cnn", batch=4))
    assert image.shapes == ({"pixel_values": ((1, 3, 32, 32), (4, 3, 32, 32), (4, 3, 32, 32))},)
    with pytest.raises(ParameterError, match="engine=openvino has no TensorRT commands"):
        intent_of(RunConfig(model="tiny-cnn", engine="openvino"))


def test_a_fixed_model_has_no_profiles():
    found = commands_for(Intent("m.onnx", "m.plan", {"x": (1, 3)}, (Profile((1, 1, 1)),)), "10")
    assert "Shapes" not in found.trtexec
    assert "profile" not in found.python


def test_the_version_that_is_installed():
    here = environment.describe()
    kept = {name: version for name, version in here.packages.items() if not name.startswith("tensorrt")}
    assert installed_version(replace(here, packages={**kept, "tensorrt-rtx": "1.7.1"})) == "rtx"
    assert installed_version(replace(here, packages={**kept, "tensorrt-rtx": "1.7.1", "tensorrt": "10.13.0"})) == "10"
    for packages in (kept, {**kept, "tensorrt": "9.2.0"}):
        with pytest.raises(MissingPackageError, match="--tensorrt"):
            installed_version(replace(here, packages=packages))


def test_nothing_heavy_is_loaded():
    program = """import sys
from accel_helpers.compilation.commands.fitting import commands_for, intent_of
from accel_helpers.config import RunConfig
commands_for(intent_of(RunConfig(model="tiny-attention", precision="int8")), "rtx")
print([name for name in ("torch", "onnx", "onnxruntime", "openvino", "tensorrt_rtx", "polygraphy") if name in sys.modules])"""
    assert run([sys.executable, "-c", program], Path.cwd()).stdout.strip() == "[]"
