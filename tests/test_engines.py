"""The contract that every engine in the folder keeps."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import small_models

from accel_helpers import engines, environment, models
from accel_helpers.accuracy import TOLERANCE, relative_error
from accel_helpers.bench import plan_of
from accel_helpers.config import PRECISIONS, QUANTIZED, RunConfig
from accel_helpers.errors import AccelError, ArtifactError, MissingPackageError, ModelError, UnsupportedError
from accel_helpers.records import Census, Gpu, Plan

HERE = environment.describe()
SEQUENCE, OTHER_SEQUENCE = 16, 24
COMPUTING = [name for name in engines.names() if name != "null"]
ON_CPU = [name for name in COMPUTING if engines.get(name).supports(Plan(name), replace(HERE, gpus=()))]
TYPES = [precision for precision in PRECISIONS if precision not in QUANTIZED]
SUPPORTED = [(name, precision) for name in ON_CPU for precision in TYPES if engines.get(name).supports(Plan(name, precision), HERE)]
# Schemes that need no training and no search for what to take back; the engines' own tests see those.
SUPPORTED += [
    (name, f"{precision} {scheme}")
    for name in ON_CPU
    for precision, schemes in engines.get(name).schemes.items()
    for scheme in schemes
    if scheme not in ("qat", "accuracy_control")
]
# Each program of torch.compile takes seconds to make, and each size wants its own: one model per type there and one quantized plan, both
# models elsewhere. Dynamic and weight-only quantization leave convolutions alone.
CASES = [
    (name, kind, model)
    for name, kind in SUPPORTED
    for model in ("tiny-cnn", "tiny-attention")
    if name != "compiled" or ((kind in ("fp32", "int8 static")) == (model == "tiny-cnn") and not kind.endswith(("dynamic", "weight_only")))
    if model == "tiny-attention" or not kind.endswith(("dynamic", "weight_only"))
]
ONE_CASE_EACH = [next(case for case in CASES if case[0] == name) for name in ON_CPU]
every_case = pytest.mark.parametrize("case", CASES, ids="-".join)
every_engine = pytest.mark.parametrize("case", ONE_CASE_EACH, ids="-".join)


def test_the_folder_holds_the_engines_of_the_first_road():
    assert {"null", "pytorch", "compiled", "onnx_runtime", "openvino"} <= set(engines.names())
    assert len(CASES) >= 15
    assert {"int8 static", "int8 dynamic", "int8 weight_only", "int4 weight_only"} <= {kind for _, kind, _ in CASES}


def plan_for(case):
    """The plan of a case: (engine, precision and scheme, model name)."""
    name, kind, model = case
    precision, _, scheme = kind.partition(" ")
    more = {"scheme": scheme, "calibration": 32} if scheme else {}
    return plan_of(RunConfig(model=model, engine=name, precision=precision, batch=2, sequence=SEQUENCE, threads=1, **more))


def tolerance(case):
    return TOLERANCE[plan_for(case).precision]


@pytest.fixture(scope="module", autouse=True)
def store(tmp_path_factory):
    """A store of this file's own, so that nothing exported by another version is found."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ACCEL_STORE", str(tmp_path_factory.getbasetemp() / "store"))
        patch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
        yield


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Build once: a case -> (plan, folder, Built)."""
    made = {}

    def get(case):
        if case not in made:
            plan, folder = plan_for(case), tmp_path_factory.mktemp("-".join(case).replace(" ", "-"))
            made[case] = plan, folder, engines.get(case[0]).build(models.get(case[2]), plan, folder)
        return made[case]

    return get


@pytest.fixture(scope="module")
def loaded(built):
    """Load once: a case -> an open session."""
    sessions = {}

    def get(case):
        if case not in sessions:
            plan, folder, _ = built(case)
            sessions[case] = engines.get(case[0]).load(models.get(case[2]), plan, folder)
        return sessions[case]

    yield get
    for session in sessions.values():
        session.close()


@pytest.fixture(scope="module")
def right(loaded):
    """PyTorch eager FP32's answer: model name, inputs -> outputs."""
    return lambda model, inputs: loaded(("pytorch", "fp32", model))(inputs)


def sizes(model):
    return [(1, SEQUENCE), (2, SEQUENCE), (3, SEQUENCE), (7, SEQUENCE), *([(3, OTHER_SEQUENCE)] if models.get(model).has_sequence else [])]


@every_case
def test_k5_outputs_match_pytorch_at_every_batch_and_another_length(case, loaded, right):
    model = case[2]
    for batch, sequence in sizes(model):
        inputs = models.get(model).example(batch, sequence, 11)
        outputs = loaded(case)(inputs)
        assert list(outputs) == list(models.get(model).outputs)
        assert all(values.dtype == np.float32 and len(values) == batch for values in outputs.values())
        assert relative_error(outputs, right(model, inputs)) <= tolerance(case), (batch, sequence)


def test_null_is_never_taken_for_right(tmp_path, right):
    inputs = models.get("tiny-cnn").example(2, SEQUENCE, 0)
    engines.get("null").build(models.get("tiny-cnn"), Plan("null"), tmp_path)
    with engines.get("null").load(models.get("tiny-cnn"), Plan("null"), tmp_path) as session:
        assert relative_error(session(inputs), right("tiny-cnn", inputs)) > TOLERANCE["bf16"]


@pytest.mark.parametrize("case", [case for case in CASES if case[2] == "tiny-attention"], ids="-".join)
def test_k18_a_padded_batch_answers_like_single_requests(case, loaded):
    lengths = (7, 11, SEQUENCE)
    batch = models.get("tiny-attention").example(len(lengths), SEQUENCE, 5)
    batch["attention_mask"][:] = np.arange(SEQUENCE) < np.array(lengths)[:, None]
    together = loaded(case)(batch)["logits"]
    alone = [
        loaded(case)({name: values[row : row + 1, :length] for name, values in batch.items()})["logits"]
        for row, length in enumerate(lengths)
    ]
    differs = relative_error({"y": together}, {"y": np.concatenate(alone)})
    # dynamic quantization takes one range from a whole batch, so a sample's rounding depends a little on its neighbours
    assert differs <= min(tolerance(case), 0.2)
    unmasked = loaded(case)({**batch, "attention_mask": np.ones_like(batch["attention_mask"])})["logits"]
    matters = relative_error({"y": unmasked[:2]}, {"y": together[:2]})
    assert matters > max(0.3, 2 * differs), "the padding must matter, or this proves nothing"


@every_case
def test_outputs_stay_when_the_session_runs_again(case, loaded):
    session, model = loaded(case), models.get(case[2])
    first, second = (session.place(model.example(2, SEQUENCE, seed)) for seed in (1, 2))
    expected = session.fetch(session.run(first))["logits"].copy()
    one, two = session.run(first), session.run(second)
    outputs = session.fetch(one)
    session.fetch(two)["logits"][:] = 0
    session.run(second)
    assert np.array_equal(outputs["logits"], expected)
    outputs["logits"][:] = 0
    assert np.array_equal(session.fetch(session.run(first))["logits"], expected)


def test_read_only_and_strided_inputs_are_read_right(loaded, right):
    inputs = models.get("tiny-cnn").example(3, SEQUENCE, 3)
    expected = right("tiny-cnn", inputs)
    read_only, strided = inputs["pixel_values"].copy(), np.asfortranarray(inputs["pixel_values"])
    read_only.setflags(write=False)
    for case in (case for case in CASES if case[2] == "tiny-cnn"):
        for odd in (read_only, strided):
            assert relative_error(loaded(case)({"pixel_values": odd}), expected) <= tolerance(case), case


def wrong_inputs():
    ids, mask = np.ones((2, SEQUENCE), np.int64), np.ones((2, SEQUENCE), np.int64)
    good = {"input_ids": ids, "attention_mask": mask}
    yield "missing", {"input_ids": ids}, "attention_mask"
    yield "unknown", {**good, "token_ids": ids}, "token_ids"
    yield "none", {}, "nothing"
    yield "type", {**good, "input_ids": ids.astype(np.float32)}, "float32"
    yield "width", {**good, "input_ids": ids.astype(np.int32)}, "int32"
    yield "rank", {**good, "attention_mask": mask[0]}, "(16,)"
    yield "two batches", {**good, "attention_mask": mask[:1]}, "(1, 16)"
    yield "two lengths", {**good, "attention_mask": mask[:, :9]}, "(2, 9)"
    yield "empty", {name: values[:0] for name, values in good.items()}, "(0, 16)"
    yield "a list", {**good, "input_ids": ids.tolist()}, "list"
    yield "beyond the vocabulary", {**good, "input_ids": ids + 5000}, ""
    yield "too long", {name: np.ones((1, 600), np.int64) for name in good}, "600"


@pytest.mark.parametrize("case", [case for case in CASES if case[2] == "tiny-attention"], ids="-".join)
def test_wrong_inputs_get_one_clear_error_and_the_session_lives_on(case, loaded):
    session, good = loaded(case), models.get("tiny-attention").example(2, SEQUENCE, 0)
    expected = session(good)["logits"]
    for what, inputs, told in wrong_inputs():
        with pytest.raises(ModelError) as caught:
            session(inputs)
        assert told in str(caught.value), what
        assert caught.value.next_step, what
        assert "\n" not in str(caught.value), what
        assert np.array_equal(session(good)["logits"], expected), what


@every_engine
def test_a_fixed_axis_is_checked(case, loaded):
    if case[2] == "tiny-cnn":
        with pytest.raises(ModelError, match=r"shape \(2, 3, 32, 31\).*pixel_values float32 \(batch, 3, 32, 32\)"):
            loaded(case)({"pixel_values": np.zeros((2, 3, 32, 31), np.float32)})


@every_case
def test_the_report_says_what_executes(case, built, loaded):
    session, model = loaded(case), models.get(case[2])
    session(model.example(2, SEQUENCE, 0))
    report = session.report
    assert report["engine_version"]
    assert report.get("device") or report.get("provider")
    assert report["threads"] == 1
    precision = plan_for(case).precision
    assert report["types"][precision] > 0
    assert set(report["types"]) <= set(PRECISIONS)
    others = sum(count for kind, count in report["types"].items() if kind != precision)
    assert bool(others) == bool(report["kept"])
    assert built(case)[2].report["types"][precision] > 0


@pytest.mark.parametrize("case", [case for case in CASES if " " in case[1]], ids="-".join)
def test_the_census_of_a_quantized_plan_adds_up(case, built):
    """Layers, their parameters and multiplications are counted, most of them quantized, and what stayed says why."""
    census = Census.from_dict(built(case)[2].report["census"])
    assert len({one.name for one in census.layers}) == len(census.layers) >= 3
    assert census.share("operations") > 0.5
    assert 0 < census.share("layers") <= 1
    assert sum(one.parameters for one in census.layers) > 1000
    for one in census.layers:
        assert one.operations > 0 or (one.parameters and one.operator in ("Gather", "embedding")), one
        assert bool(one.reason) == (not one.precision.startswith("int")), one
        assert not one.parameters or 0.4 * one.parameters < one.weight_bytes <= 4.2 * one.parameters, one


@pytest.mark.parametrize("name", ["null", *ON_CPU])
def test_close_twice_and_use_after_close(name, tmp_path):
    model, plan, engine = small_models.linear(), Plan(name), engines.get(name)
    engine.build(model, plan, tmp_path)
    session = engine.load(model, plan, tmp_path)
    placed = session.place(model.example(1, 1, 0))
    session.close()
    session.close()
    with pytest.raises(AccelError, match="closed"):
        session.run(placed)
    if name != "null":
        with pytest.raises(AccelError, match="closed"):
            _ = session.report


@pytest.mark.parametrize("name", ["null", *ON_CPU])
def test_damaged_files_are_an_artifact_error(name, tmp_path):
    model, plan, engine = small_models.linear(), Plan(name), engines.get(name)
    files = engine.build(model, plan, tmp_path).files
    assert files
    assert sorted(one.name for one in tmp_path.iterdir()) == sorted(files), "all that build leaves is listed"
    for file in files:
        whole = (tmp_path / file).read_bytes()
        for damaged in (None, b"", whole[: len(whole) // 2], b"\x93garbage" * 40):
            if damaged is None:
                (tmp_path / file).unlink()
            else:
                (tmp_path / file).write_bytes(damaged)
            with pytest.raises(ArtifactError) as caught:
                engine.load(model, plan, tmp_path)
            assert "again" in caught.value.next_step
        (tmp_path / file).write_bytes(whole)
    engine.load(model, plan, tmp_path).close()


GPU_PACKAGES = {**HERE.packages, "onnxruntime-gpu": "1.31.1", "pycuda": "2026.1"}
GPU = Gpu("NVIDIA RTX 2080", 8 * 2**30, "7.5", "600.1")
NO_GPU, NO_CUDA = replace(HERE, gpus=(), cuda="12.8", packages=GPU_PACKAGES), replace(HERE, gpus=(), cuda="")
OLD_GPU = replace(HERE, gpus=(GPU,), cuda="12.8", packages=GPU_PACKAGES)
NEW_GPU = replace(OLD_GPU, gpus=(replace(GPU, name="NVIDIA H100", compute_capability="9.0"),))
OLD_CPU = replace(HERE, isa=("avx2",), cpu="an old processor")


@pytest.mark.parametrize("name", COMPUTING)
def test_what_cannot_run_says_why_before_anything_is_built(name, monkeypatch):
    engine = engines.get(name)
    monkeypatch.setattr(engine, "build", lambda *_: pytest.fail("nothing may be built"))
    for precision, device, here in [
        *((precision, "cuda", here) for precision in PRECISIONS for here in (NO_GPU, NO_CUDA)),
        ("tf32", "cuda", OLD_GPU),
        ("bf16", "cuda", OLD_GPU),
        ("tf32", "cpu", HERE),
        ("bf16", "cpu", OLD_CPU),
        ("fp16", "cpu", OLD_CPU),
    ]:
        with pytest.raises(UnsupportedError, match=r"cannot run on this machine: .{15,}"):
            engine.require(Plan(name, precision, device), here)
    assert bool(engine.supports(Plan(name), OLD_CPU)) == (name != "tensorrt")
    assert bool(engine.supports(Plan(name, device="cuda"), OLD_GPU)) == (name != "openvino")
    other = name == "openvino" or "tensorrt_rtx" in engine.needs  # TensorRT-RTX compiles for no GPU of capability 9.0
    assert bool(engine.supports(Plan(name, "tf32", "cuda"), NEW_GPU)) == (not other)


@pytest.mark.parametrize("name", COMPUTING)
def test_a_missing_package_explains_itself(name, monkeypatch):
    engine = engines.get(name)
    assert engine.needs
    assert engine.missing() == ()
    monkeypatch.setattr(engine, "needs", (*engine.needs, "no_such_package"))
    with pytest.raises(MissingPackageError, match=r"no_such_package.*pip install -e"):
        engine.require(Plan(name), HERE)


def test_asking_what_is_supported_imports_no_framework():
    code = """
import sys
from accel_helpers import engines, environment
from accel_helpers.records import Plan
here = environment.describe()
for name in engines.names():
    engines.get(name).supports(Plan(name), here), engines.get(name).missing()
print(sorted({"torch", "onnxruntime", "openvino", "onnx", "transformers", "safetensors"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
