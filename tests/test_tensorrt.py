"""TensorRT engines built ahead of time, for real: no GPU is needed for that, and none is used here. What runs them is in test_gpu.py."""

import hashlib
import json
import multiprocessing
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import small_models

from accel_helpers import engines, environment, models
from accel_helpers.accuracy import TOLERANCE
from accel_helpers.device import store_root
from accel_helpers.engines import _onnx_export, _tensorrt_build, _tensorrt_cache, _tensorrt_open, _tensorrt_plan, _tensorrt_types, tensorrt
from accel_helpers.environment import gpu_rules
from accel_helpers.errors import ArtifactError, ModelError, UnsupportedError
from accel_helpers.records import Compilation, Gpu, Plan, Profile, Quantization

ENGINE = engines.get("tensorrt")
RTX = "tensorrt_rtx" in ENGINE.needs
STATIC = Quantization("static", calibration=8, symmetric=True)
ADA = Gpu("NVIDIA RTX 4090", 24 * 2**30, "8.9", "600.1")
HERE = replace(environment.describe(), gpus=(ADA,), cuda="13.0", packages={**environment.describe().packages, "pycuda": "2026.1"})
ONE = Profile((1, 4, 8), (8, 16, 32))
TYPE = {"fp32": "FLOAT", "tf32": "FLOAT", "fp16": "HALF", "bf16": "BF16"}
pytestmark = pytest.mark.skipif(not RTX, reason="TensorRT builds on a GPU only; its tests are in test_gpu.py")


@pytest.fixture(scope="module", autouse=True)
def store(tmp_path_factory):
    """A store without engines; its exported graphs are those of the other tests."""
    shared, own = tmp_path_factory.getbasetemp() / "store/onnx", tmp_path_factory.mktemp("tensorrt")
    shared.mkdir(parents=True, exist_ok=True)
    (own / "onnx").symlink_to(shared)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ACCEL_STORE", str(own))
        yield


def plan_of(asked="fp32", profiles=(ONE,), **more):
    """A plan for ``fp16``, or ``int8+bf16``: a type, and that of the rest; other words are of its Compilation."""
    precision, _, rest = asked.partition("+")
    quantization = replace(STATIC, rest=rest or "fp32") if precision in ("int8", "fp8") else None
    compilation = Compilation(profiles=profiles, **more)
    return Plan("tensorrt", precision, "cuda", batch=4, sequence=16, quantization=quantization, compilation=compilation)


def facts_of(folder):
    return json.loads((folder / "engine.json").read_text())


# Types


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        *(("tiny-cnn", one) for one in ("fp32", "tf32", "fp16", "bf16", "int8", "fp8", "int8+bf16", "fp8+bf16")),
        *(("tiny-attention", one) for one in ("fp16", "bf16", "int8+bf16")),
    ],
    ids=lambda one: one,
)
def test_each_type_builds_and_is_the_type_of_the_network(name, asked, out):
    plan = plan_of(asked)
    built = ENGINE.build(models.get(name), plan, out)
    assert sorted(file.name for file in out.iterdir()) == sorted(built.files) == ["engine.json", "model.plan"]
    rest = plan.quantization.rest if plan.quantization else plan.precision
    products = {"tiny-cnn": (3, 0), "tiny-attention": (9, 4) if plan.quantization else (13, 0)}[name]
    assert built.report["types"] == {kind: count for kind, count in zip((plan.precision, rest), products, strict=True) if count}
    layers = built.report["layers"]
    multiplied = {kind for operator in ("CONVOLUTION", "MATRIX_MULTIPLY") for kind in layers.get(operator, {})}
    assert multiplied == {TYPE[rest]}, "between the pairs as well, nothing is in another type"
    if plan.quantization:
        assert layers["QUANTIZE"] == {plan.precision.upper(): 2 * products[0]}
    assert bool(built.report["kept"]) == bool(products[1])
    assert built.report["settings"]["tf32"] == (asked == "tf32")
    if asked in ("fp32", "tf32"):
        assert "compared" not in built.report
    else:
        assert 0 < built.report["compared"]["worst_error"] < TOLERANCE[plan.precision]
    assert built.report["layers"] == json.loads(json.dumps(layers)), "it goes into a manifest"


def test_what_is_written_beside_the_engine_describes_it(out):
    ENGINE.build(models.get("tiny-attention"), plan_of("fp16"), out)
    facts, blob = facts_of(out), (out / "model.plan").read_bytes()
    header = _tensorrt_plan.check(blob, facts["library"], facts["version"])
    assert (header.version, header.size) == (facts["version"], len(blob))
    assert facts["plan_sha256"] == hashlib.sha256(blob).hexdigest()
    assert facts["compute_capability"] == [_tensorrt_build.here() or tensorrt.AHEAD]
    assert facts["profiles"] == [{name: [[1, 8], [4, 16], [8, 32]] for name in ("input_ids", "attention_mask")}]
    assert facts["inputs"]["input_ids"] == {"dtype": "int64", "shape": ["batch", "sequence"]}
    assert (facts["outputs"], facts["precision"], facts["refit"], facts["weight_streaming"]) == (["logits"], "fp16", False, False)
    assert facts["cuda"].isdigit()
    assert facts["build_seconds"] > 0
    assert len(facts["graph_sha256"]) == 64


def test_fp16_that_overflows_is_refused_and_bf16_builds(out):
    """6e4 times a number above two is beyond FP16 and well within BF16."""
    model = small_models.network(lambda self, x: self.a(x * 6e4 * 10) / 6e4, "large")
    plan = plan_of("fp16", (Profile((1, 2, 4)),))
    with pytest.raises(ModelError, match=r"'y' of large overflows in FP16: .*precision=bf16"):
        ENGINE.build(model, plan, out)
    assert not list(out.iterdir())
    assert ENGINE.build(model, replace(plan, precision="bf16"), out).report["compared"]["worst_error"] < TOLERANCE["bf16"]


def test_bf16_keeps_masks_finite_and_scales_of_a_resize_exact():
    """The least FP32 number, which masks attention, rounds to minus infinity in BF16, and infinities subtract to no number."""
    import onnx
    from onnx import helper

    constants = {"mask": np.float32([np.finfo(np.float32).min, -np.inf, 1]), "scales": np.float32([1, 1, 2])}
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "mask"], ["s"]), helper.make_node("Resize", ["s", "", "scales"], ["y"], mode="nearest")],
        "graph",
        [value("x", 1, ["batch", 1, 3])],
        [value("y", 1, ["batch", 1, 6])],
        [onnx.numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    loaded = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    _tensorrt_types.to_bf16(loaded)
    kept = {one.name: onnx.numpy_helper.to_array(one) for one in loaded.graph.initializer}
    assert kept["scales"].dtype == np.float32
    assert [bool(np.isfinite(one)) for one in kept["mask"].astype(np.float32)] == [True, False, True]
    assert [node.op_type for node in loaded.graph.node] == ["Cast", "Add", "Resize", "Cast"]
    assert [value.type.tensor_type.elem_type for value in (*loaded.graph.input, *loaded.graph.output)] == [1, 1]


@pytest.mark.parametrize(("kind", "spare"), [("fp16", 0x1FFF), ("bf16", 0xFFFF)])
def test_the_graph_that_is_compared_rounds_after_each_operator(kind, spare, tmp_path):
    import onnx
    import onnxruntime

    _onnx_export.export(models.get("tiny-cnn"), tmp_path)
    change = {"fp16": _tensorrt_types.to_fp16, "bf16": _tensorrt_types.to_bf16}[kind]
    loaded = change(onnx.load(tmp_path / "model.onnx"))
    onnx.checker.check_model(loaded)
    stand_in = _tensorrt_types.rounding(loaded)
    watched = [node.output[0] for node in stand_in.graph.node if node.op_type == "Cast" and node.input[0].endswith("_short")]
    assert len(watched) == len(loaded.graph.node) - 1, "all but the cast at the end"
    stand_in.graph.output.extend(onnx.helper.make_tensor_value_info(name, 1, None) for name in watched)
    session = onnxruntime.InferenceSession(stand_in.SerializeToString(), providers=["CPUExecutionProvider"])
    for values in session.run(watched, models.get("tiny-cnn").example(2, 16, 0)):
        assert not (values.view(np.uint32) & spare).any(), "the bits that the type lacks are zero"


# Profiles and options


def test_several_profiles_go_into_one_engine(out):
    profiles = (Profile((1, 1, 1)), Profile((1, 2, 4)), Profile((4, 8, 8)))
    built = ENGINE.build(models.get("tiny-cnn"), plan_of("fp16", profiles), out)
    batches = [[sizes[0] for sizes in profile["pixel_values"]] for profile in built.report["profiles"]]
    assert batches == [[1, 1, 1], [1, 2, 4], [4, 8, 8]]


def test_a_plan_without_profiles_gets_one_and_an_open_axis_of_its_own_goes_from_one():
    plan = Plan("tensorrt", device="cuda", batch=4, sequence=16)
    assert _tensorrt_build.shapes(models.get("tiny-cnn"), plan) == ({"pixel_values": ((1, 3, 32, 32), (4, 3, 32, 32), (4, 3, 32, 32))},)
    odd = small_models.of(None, shape=(8, 5), axes={"x": {0: "batch", 1: "frames"}, "y": {0: "batch"}})
    assert _tensorrt_build.shapes(odd, plan) == ({"x": ((1, 1, 5), (4, 8, 5), (4, 8, 5))},)


def test_a_profile_longer_than_the_model_reads_is_refused_before_anything_is_built(out):
    with pytest.raises(ModelError, match="reads 1 to 512 tokens; 4096 were asked for"):
        ENGINE.build(models.get("tiny-attention"), plan_of("fp32", (Profile((1, 1, 1), (1, 16, 4096)),)), out)


def test_options_are_read_back_from_the_builder(out):
    asked = {"workspace_bytes": 2**28, "weight_streaming": True}
    built = ENGINE.build(models.get("tiny-cnn"), plan_of("fp32", **asked), out)
    assert built.report["settings"] == {"tf32": False, "refit": False, "optimization_level": 3, **asked}
    assert facts_of(out)["weight_streaming"]
    assert built.report["timing_cache"].startswith("none: TensorRT-RTX times no kernels")


def test_the_optimization_level_is_refused_because_it_changes_nothing(tmp_path):
    _onnx_export.export(models.get("tiny-cnn"), tmp_path)
    with pytest.raises(UnsupportedError, match=r"TensorRT-RTX .* builds the same engine at every optimization level as at 3"):
        _tensorrt_build.check(plan_of("fp32", optimization_level=5), ["8.9"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_tensorrt_build, "without_effect", lambda plan: "")
        levels = [plan_of("fp32", optimization_level=level) for level in (0, 3, 5)]
        built = [_tensorrt_build.serialized(models.get("tiny-cnn"), one, tmp_path / "model.onnx", ["8.9"])[0] for one in levels]
    assert len({bytes(one) for one in built}) == 1, "where it has an effect, it must be taken"


def test_too_little_workspace_is_explained(out):
    with pytest.raises(ModelError, match=r"TensorRT cannot build for compute capability [\d.]+ of tiny-cnn: .{10,}") as caught:
        ENGINE.build(models.get("tiny-cnn"), plan_of("fp32", workspace_bytes=2**20), out)
    assert "\n" not in str(caught.value)
    assert not list(out.iterdir())


@pytest.mark.skipif(bool(environment.describe().gpus), reason="a GPU is here")
def test_an_engine_whose_weights_can_be_replaced_takes_a_gpu_and_says_so(out):
    with pytest.raises(UnsupportedError, match=r"TensorRT-RTX .* compiles an engine whose weights can be replaced on a GPU alone"):
        ENGINE.build(models.get("tiny-cnn"), plan_of("fp32", refit=True), out)
    plan, trt = plan_of("fp32", refit=True), _tensorrt_build.installed()
    assert _tensorrt_build._settle(trt.Builder(trt.Logger(trt.Logger.ERROR)).create_builder_config(), plan)["refit"]


@pytest.mark.parametrize(
    ("more", "told"),
    [({"refit": True}, "has no REFIT"), ({"weight_streaming": True}, "has no WEIGHT_STREAMING"), ({}, "has no TF32")],
)
def test_an_option_that_the_library_lacks_names_it(more, told, monkeypatch):
    lacking = SimpleNamespace(__version__="1.0.0", BuilderFlag=SimpleNamespace(), ComputeCapability=SimpleNamespace(SM89=1))
    monkeypatch.setattr(_tensorrt_build, "installed", lambda: lacking)
    with pytest.raises(UnsupportedError, match=rf"TensorRT-RTX 1\.0\.0 {told}"):
        _tensorrt_build.check(plan_of("fp32" if more else "tf32", **more), ["8.9"])


def test_a_setting_that_does_not_hold_is_an_error():
    trt = _tensorrt_build.installed()
    config = trt.Builder(trt.Logger(trt.Logger.ERROR)).create_builder_config()
    with pytest.raises(UnsupportedError, match=r"TensorRT-RTX .* took optimization_level=\d+ where 9 was asked for"):
        _tensorrt_build._settle(config, plan_of("fp32", optimization_level=9))


# Ahead of time


def test_several_capabilities_go_into_one_engine(out):
    built = tensorrt.ahead(models.get("tiny-cnn"), plan_of("fp16"), out, ("12.0", "8.6", "8.9"))
    assert built.report["compute_capability"] == facts_of(out)["compute_capability"] == ["8.6", "8.9", "12.0"]
    shutil.rmtree(out)
    out.mkdir()
    again = tensorrt.ahead(models.get("tiny-cnn"), plan_of("fp16"), out, ("8.9", "12.0", "8.6", "8.6"))
    assert again.report["engine_cache"] == "found"


@pytest.mark.parametrize(("wrong", "told"), [("9.0", "compute capability 9.0; it does for 7.5"), ("latest", "capability latest; it")])
def test_a_capability_that_it_does_not_compile_for_is_refused_by_name_and_version(wrong, told, out):
    with pytest.raises(UnsupportedError, match=rf"TensorRT-RTX {_tensorrt_build.installed().__version__} does not compile for .*{told}"):
        tensorrt.ahead(models.get("tiny-cnn"), plan_of(), out, ("8.9", wrong))
    with pytest.raises(UnsupportedError, match="No compute capability"):
        tensorrt.ahead(models.get("tiny-cnn"), plan_of(), out, ())


def test_tensorrt_itself_builds_for_the_gpu_that_is_there_alone(monkeypatch):
    monkeypatch.setattr(_tensorrt_build, "installed", lambda: SimpleNamespace(__version__="11.4.0", BuilderFlag=SimpleNamespace()))
    monkeypatch.setattr(_tensorrt_build, "NAME", "tensorrt")
    there = _tensorrt_build.here() or "none"
    with pytest.raises(UnsupportedError, match=rf"TensorRT 11\.4\.0 builds for the GPU that is there \({there}\), not for 7\.0"):
        _tensorrt_build.check(plan_of(), ["7.0"])


def test_the_capabilities_are_those_of_the_library_and_of_the_environment_check():
    members = {name for name in dir(_tensorrt_build.installed().ComputeCapability) if name.startswith("SM")}
    assert {f"SM{one.replace('.', '')}" for one in tensorrt.RTX_CAPABILITIES} == members
    assert tensorrt.RTX_CAPABILITIES == gpu_rules.RTX_CAPABILITIES


# The cache


def entry(plan, model="tiny-cnn"):
    """The folder of the cache for a plan, and the files in it."""
    decides = tensorrt._decides(models.get(model), plan, [_tensorrt_build.here() or tensorrt.AHEAD])
    return store_root() / "tensorrt" / _tensorrt_cache.key(decides)


def test_a_second_build_is_found_and_is_the_very_same_file(tmp_path):
    model, plan = models.get("tiny-cnn"), plan_of("bf16", (Profile((1, 2, 2)),))
    made = []
    for number, asked in enumerate((plan, replace(plan, batch=2, threads=3, mode="cuda_graph"))):
        (folder := tmp_path / str(number)).mkdir()
        built = ENGINE.build(model, asked, folder)
        made.append(((folder / "model.plan").read_bytes(), built.report.pop("engine_cache"), built.report))
    assert made[0][0] == made[1][0]
    assert [one[1] for one in made] == ["built", "found"]
    assert made[0][2] == made[1][2]


@pytest.mark.parametrize("file", ["model.plan", "engine.json", "digests.json"])
def test_a_flipped_bit_in_the_cache_is_never_used(file, tmp_path):
    plan = plan_of("fp32", (Profile((1, 2, 3)),))
    for folder in ("first", "second", "third"):
        (tmp_path / folder).mkdir()
    ENGINE.build(models.get("tiny-cnn"), plan, tmp_path / "first")
    damaged = entry(plan) / file
    good = damaged.read_bytes()
    damaged.write_bytes(good[:100] + bytes([good[100] ^ 1]) + good[101:])
    assert ENGINE.build(models.get("tiny-cnn"), plan, tmp_path / "second").report["engine_cache"] == "built"
    assert facts_of(tmp_path / "second")["plan_sha256"] == hashlib.sha256((tmp_path / "second/model.plan").read_bytes()).hexdigest()
    assert ENGINE.build(models.get("tiny-cnn"), plan, tmp_path / "third").report["engine_cache"] == "found", "the entry was put right"


def test_nothing_that_would_be_another_engine_hits(monkeypatch):
    plan, model = plan_of("int8"), models.get("tiny-cnn")
    changed = [
        replace(plan, precision="fp8"),
        replace(plan, quantization=replace(STATIC, seed=1)),
        *(replace(plan, compilation=replace(plan.compilation, **one)) for one in ({"refit": True}, {"workspace_bytes": 2**29})),
        replace(plan, compilation=replace(plan.compilation, profiles=(Profile((1, 4, 9)),))),
        replace(plan, compilation=replace(plan.compilation, simplifier="onnxslim")),
    ]
    keys = [tensorrt._decides(model, one, ["8.9"]) for one in (plan, *changed)]
    keys += [tensorrt._decides(model, plan, ["8.6"]), tensorrt._decides(model, plan, ["8.6", "8.9"])]
    keys.append(tensorrt._decides(replace(model, fingerprint="another"), plan, ["8.9"]))
    with monkeypatch.context() as patch:
        patch.setattr(_tensorrt_build.installed(), "__version__", "1.7.2.0")
        keys.append(tensorrt._decides(model, plan, ["8.9"]))
    with monkeypatch.context() as patch:
        patch.setattr(_tensorrt_build, "cuda", lambda: "12")
        keys.append(tensorrt._decides(model, plan, ["8.9"]))
    with monkeypatch.context() as patch:
        patch.setattr(tensorrt, "_version", lambda name: "0.0.1")
        keys.append(tensorrt._decides(model, plan, ["8.9"]))
    without = replace(plan, compilation=Compilation())
    keys += [tensorrt._decides(model, replace(without, batch=batch), ["8.9"]) for batch in (1, 2)]
    assert len({_tensorrt_cache.key(one) for one in keys}) == len(keys)


def build_and_tell(folder, told):
    """In a process of its own: build, and say whether it was found."""
    built = ENGINE.build(models.get("tiny-cnn"), plan_of("fp32", (Profile((1, 5, 6)),)), folder)
    told.put((built.report["engine_cache"], hashlib.sha256((folder / "model.plan").read_bytes()).hexdigest()))


def test_of_two_processes_one_builds_and_both_have_the_same(tmp_path):
    context = multiprocessing.get_context("spawn")
    told, folders = context.Queue(), [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
    builders = [context.Process(target=build_and_tell, args=(folder, told)) for folder in folders]
    for one in builders:
        one.start()
    answers = [told.get(timeout=120) for _ in builders]
    for one in builders:
        one.join(30)
    assert sorted(answer[0] for answer in answers) == ["built", "found"]
    assert answers[0][1] == answers[1][1]
    assert not list((store_root() / "tensorrt").glob("part-*")), "nothing half done is left"


@pytest.mark.filterwarnings("ignore:.*Timing cache operations are no-ops:DeprecationWarning")
def test_timings_are_kept_for_tensorrt_by_calls_that_exist():
    """TensorRT-RTX still has the calls, which do nothing there; TensorRT, for which they are made, cannot be installed everywhere."""
    trt, said = _tensorrt_build.installed(), []
    builder = trt.Builder(_tensorrt_open.logger(trt))
    for version in ("11.4.0", "11.4.0", "11.5.0"):
        config = builder.create_builder_config()
        with _tensorrt_cache.timing(version, config, "tensorrt", ["8.9"]) as told:
            assert config.get_timing_cache() is not None
        said.append(told)
    kept = store_root() / "tensorrt/timing-11.4.0-8.9.bin"
    assert kept.stat().st_size > 0
    assert said[:2] == [f"kept in {kept.name}, {size} bytes from earlier builds" for size in (0, kept.stat().st_size)]
    assert said[2].startswith("kept in timing-11.5.0-8.9.bin, 0 bytes"), "another version's timings are not taken"


# The file


@pytest.fixture(scope="module")
def blob(store, tmp_path_factory):
    folder = tmp_path_factory.mktemp("blob")
    ENGINE.build(models.get("tiny-cnn"), plan_of("fp16"), folder)
    return (folder / "model.plan").read_bytes()


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda blob: b"", r"is no TensorRT engine: its header is missing \(0 bytes"),
        (lambda blob: blob[:63], r"is no TensorRT engine: its header is missing \(63 bytes"),
        (lambda blob: b"\x08\x07" + blob, "is no TensorRT engine"),
        (lambda blob: bytes([blob[0] ^ 1]) + blob[1:], "is no TensorRT engine"),
        (lambda blob: blob[:64], r"is damaged: its header says \d+ bytes, and it has 64"),
        (lambda blob: blob[:-1], "is damaged: its header says"),
        (lambda blob: blob + b"\0", "is damaged: its header says"),
        (lambda blob: blob[:16] + bytes([blob[16] ^ 1]) + blob[17:], "is damaged: its header says"),
        (lambda blob: blob[:25] + bytes([blob[25] ^ 1]) + blob[26:], r"was written by TensorRT-RTX \d.* is installed, and opens only its"),
        (lambda blob: b"ftrt" + blob[4:], r"was written by TensorRT \d.*; TensorRT-RTX .* is installed"),
    ],
    ids=["empty", "short", "shifted", "magic", "header alone", "cut", "longer", "size", "version", "library"],
)
def test_a_spoilt_engine_is_told_from_its_bytes_alone(blob, spoil, told):
    version = _tensorrt_build.installed().__version__
    _tensorrt_plan.check(blob, "tensorrt_rtx", version)
    with pytest.raises(ArtifactError, match=rf"^model\.plan {told}.*Build the artifact again\.$") as caught:
        _tensorrt_plan.check(spoil(blob), "tensorrt_rtx", version)
    assert "\n" not in str(caught.value)


def test_the_header_is_as_long_as_the_library_says():
    trt = _tensorrt_build.installed()
    assert trt.Runtime(trt.Logger(trt.Logger.INTERNAL_ERROR)).engine_header_size == _tensorrt_plan.HEADER


# What runs where


def test_supports_says_what_stands_in_the_way():
    no_gpu, hopper = replace(HERE, gpus=()), replace(HERE, gpus=(replace(ADA, name="NVIDIA H200", compute_capability="9.0"),))
    ampere = replace(HERE, gpus=(replace(ADA, name="NVIDIA A10", compute_capability="8.6"),))
    turing = replace(HERE, gpus=(replace(ADA, name="NVIDIA T4", compute_capability="7.5"),))
    bare = replace(HERE, packages={name: one for name, one in HERE.packages.items() if name != "pycuda"})
    for asked in ("fp32", "tf32", "fp16", "bf16", "int8", "fp8", "int8+bf16"):
        assert ENGINE.supports(plan_of(asked), HERE), asked
    int8 = plan_of("int8")
    for plan, here, told in [
        (replace(plan_of(), device="cpu"), HERE, "choose device=cuda"),
        (Plan("tensorrt", "int4", "cuda", quantization=STATIC), HERE, "quantizes nothing to INT4"),
        (plan_of(), no_gpu, "no CUDA GPU"),
        (plan_of(), bare, "pycuda, which holds TensorRT's buffers"),
        (plan_of("fp8"), ampere, "needs compute capability 8.9"),
        (plan_of("bf16"), turing, "BF16 needs compute capability 8.0"),
        (plan_of("int8+bf16"), turing, "BF16 needs compute capability 8.0"),
        (replace(int8, quantization=replace(STATIC, symmetric=False)), HERE, "choose symmetric=true"),
        (replace(int8, quantization=replace(STATIC, reduce_range=True)), HERE, "choose reduce_range=off"),
        (replace(int8, quantization=replace(STATIC, rest="fp16")), HERE, "choose rest=fp32"),
        (replace(int8, quantization=Quantization("dynamic")), HERE, "by scheme static"),
        (replace(plan_of(), mode="nothing"), HERE, "no mode nothing; it has default, cuda_graph"),
        (plan_of(), hopper, "H200 has 9.0"),
        (plan_of(optimization_level=5), HERE, "TensorRT-RTX builds the same engine at every optimization level"),
    ]:
        answer = ENGINE.supports(plan, here)
        assert not answer
        assert told in answer.reason


@pytest.mark.skipif(bool(environment.describe().gpus), reason="a GPU is here")
def test_loading_without_a_gpu_is_one_sentence_and_no_engine_is_opened(out):
    model, plan = models.get("tiny-cnn"), plan_of("fp16")
    ENGINE.build(model, plan, out)
    with pytest.raises(UnsupportedError) as caught:
        ENGINE.load(model, plan, out)
    assert "\n" not in str(caught.value)
    Path(out / "model.plan").write_bytes(b"vtrt")
    with pytest.raises(ArtifactError, match="is no TensorRT engine"):
        ENGINE.load(model, plan, out)
