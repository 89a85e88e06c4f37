"""The explainer: the right cause on every constructed case, none on healthy models, and a cure that is measured."""

import os
import time
from dataclasses import replace

import numpy as np
import pytest
import quantization_cases as cases
from machines import AMX, OLD_LAPTOP

from accel_helpers import engines, environment, models, quantize
from accel_helpers.bench import Comparison
from accel_helpers.config import RunConfig
from accel_helpers.errors import ArtifactError, ParameterError
from accel_helpers.intervals import Estimate
from accel_helpers.quantize import Cause, Evidence, cure, explain, facts, kernels, probes
from accel_helpers.records import Census, Layer, Plan, Quantization, Verdict
from accel_helpers.store import Store
from accel_helpers.store.folder import artifact_key


def names(evidence):
    return tuple(cause.name for cause in explain(evidence))


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    """The case of a name, built once."""
    built = {}

    def get(name):
        if name not in built:
            built[name] = (cases.FAULTY | cases.HEALTHY | cases.MORE)[name](tmp_path_factory.mktemp("case"))
        return built[name]

    return get


@pytest.fixture(scope="module")
def own_store(tmp_path_factory):
    before = os.environ.get("ACCEL_STORE")
    os.environ["ACCEL_STORE"] = str(tmp_path_factory.mktemp("store"))
    yield
    os.environ.pop("ACCEL_STORE")
    if before is not None:
        os.environ["ACCEL_STORE"] = before


def faster(times, score=None):
    return Verdict("a", "b", wall=(times,) * 7, cpu=(times,) * 7, **({"changes": score, "score_change": np.mean(score)} if score else {}))


def test_there_are_twelve_cases_with_a_fault_and_at_least_eight_without():
    assert len(cases.FAULTY) == 12
    assert len(cases.HEALTHY) >= 8


@pytest.mark.parametrize("name", [*cases.FAULTY, *cases.MORE])
def test_the_right_cause_and_no_other_is_named(name, case):
    one = case(name)
    assert one.fault > one.limit, "the case does not show its fault"
    (cause,) = explain(one.evidence)
    assert cause.name == cases.CAUSE.get(name, name)
    assert cause.predicted.value > 1.1
    assert any(character.isdigit() for character in cause.evidence)
    RunConfig().replace(**cause.changes)  # the cure can be applied


@pytest.mark.parametrize("name", cases.HEALTHY)
def test_a_healthy_model_has_no_cause(name, case):
    evidence = case(name)
    assert evidence.error is None or evidence.error < 0.1
    assert names(evidence) == ()
    assert names(replace(evidence, error=None, verdict=None)) == ()  # nor where nobody has measured that it is right and fast


@pytest.mark.parametrize("name", ["small_channels", "unfused", "dynamic_convolutions"])
def test_a_model_measured_to_be_faster_has_no_cause_of_slowness(name, case):
    evidence = case(name).evidence
    assert names(replace(evidence, verdict=faster(1.3))) == ()
    assert names(replace(evidence, verdict=faster(0.8))) == (name,)


@pytest.mark.parametrize("name", ["saturation", "calibration", "outliers"])
def test_a_model_measured_to_be_right_has_no_cause_of_wrongness(name, case):
    evidence = case(name).evidence
    right, worse = (0,) * 1000, (-1,) * 100 + (0,) * 900
    assert names(replace(evidence, verdict=faster(1.3, right))) == ()
    assert names(replace(evidence, verdict=faster(1.3, worse))) == (name,)


def test_a_small_gain_needs_a_measured_symptom(case):
    """Eight per cent are no cause while nobody has seen the model be slow."""
    evidence = case("unfused").evidence
    little = replace(evidence, census=replace(evidence.census, unfused=6))
    assert names(little) == ()
    assert names(replace(little, verdict=faster(0.9))) == ("unfused",)


def test_padding_is_work_only_where_there_is_much_of_it_and_the_model_is_slow(case):
    single = replace(case("masked padding"), verdict=faster(0.8), padding=0.6)
    evidence = replace(single, plan=replace(single.plan, batch=8))
    assert names(single) == (), "one item alone is not padded to another's length"
    (cause,) = explain(evidence)
    assert cause.name == "padding_work"
    assert cause.predicted.value == pytest.approx(2.5)
    assert names(replace(evidence, padding=0.1)) == ()
    assert names(replace(evidence, verdict=faster(1.2))) == ()


def test_the_cause_of_the_measured_symptom_comes_first(case):
    """A model that is measured to be slow, and may be wrong too."""
    evidence = replace(case("saturation").evidence, census=case("unfused").evidence.census, verdict=faster(0.8))
    assert [cause.symptom for cause in explain(evidence)] == ["slow", "wrong"]


def test_no_figure_no_cause(case):
    """Flags and settings alone name nothing: a cause rests on a timing, a weight, an activation or a census."""
    for name in cases.FAULTY:
        evidence = case(name).evidence
        bare = Evidence(evidence.model, evidence.plan, evidence.environment)
        assert names(bare) == (), name


def test_k1_a_small_convolutional_network_is_advised_against_int8(case):
    (cause,) = explain(case("small_channels").evidence)
    assert "8 output channels" in cause.evidence
    assert cause.changes == {"precision": "fp32"}
    assert cause.predicted.low > 1.1


def test_k2_dynamic_convolutions_are_counted(case):
    (cause,) = explain(case("dynamic_convolutions").evidence)
    assert cause.evidence.startswith("4 convolutions run as ConvInteger")
    assert cause.changes == {"scheme": "static"}


def test_k3_a_network_left_in_float_says_so(case):
    (cause,) = explain(case("not_quantized").evidence)
    assert "4 of 4 layers" in cause.statement
    assert "0% of the multiplications" in cause.evidence


def test_a_census_of_any_engine_tells_that_little_is_quantized():
    layers = (Layer("a", "aten::linear", "fp32", 10, 40, 900, "kept by name"), Layer("b", "onednn::qlinear_pointwise", "int8", 10, 10, 100))
    plan = Plan("compiled", "int8", quantization=Quantization("static", calibration=8))
    (cause,) = explain(Evidence("m", plan, AMX, Census(layers), verdict=faster(0.9)))
    assert cause.name == "not_quantized"
    assert "10% of the multiplications" in cause.evidence
    assert "kept by name" in cause.evidence
    assert 1 < cause.predicted.value < 4
    nothing = Evidence("m", plan, AMX, Census(layers[:1]))
    assert names(nothing) == ("not_quantized",)
    assert names(replace(nothing, census=Census(layers[1:]))) == ()


def test_k10_the_same_file_saturates_on_one_processor_and_not_on_the_other(case):
    evidence = case("saturation").evidence
    (cause,) = explain(evidence)
    assert cause.changes == {"reduce_range": "on"}
    assert names(replace(evidence, environment=AMX, saturates=False)) == ()


def test_k10_an_artifact_is_bound_to_the_processor_it_was_judged_on(tmp_path):
    plan = Plan("onnx_runtime", "int8", quantization=Quantization("static", calibration=8))
    keys = {artifact_key("f", plan, machine.hardware, {}) for machine in (AMX, OLD_LAPTOP)}
    assert len(keys) == 2

    from accel_helpers.engine import Built

    def build(out):
        (out / "model.onnx").write_bytes(b"x")
        return Built(("model.onnx",), {})

    artifact, _, _ = Store(tmp_path).artifact(models.get("tiny-cnn"), plan, AMX, {}, build)
    with pytest.raises(ArtifactError):
        Store(tmp_path).open(artifact, OLD_LAPTOP)


@pytest.mark.parametrize("engine", kernels.ENGINES)
def test_the_probe_of_saturation_agrees_with_the_processors_flags(engine):
    assert probes.saturates(engine) == engines.overflows(environment.describe())


def test_the_predicted_overflow_is_what_this_processor_does(tmp_path):
    """Where products saturate, the outputs are wrong by what the weights predict; elsewhere they are right."""
    source, data = cases.bright(tmp_path)
    built = cases.static(source, data, cases.STATIC)
    evidence = cases.looked_at(source, built, data, cases.STATIC, cases.AVX2)
    predicted = max(one.overflow_error for one in evidence.layers)
    if probes.saturates("onnx_runtime"):
        assert evidence.error == pytest.approx(predicted, rel=0.5)
    else:
        assert evidence.error < 0.05
    reduced = cases.looked_at(source, cases.static(source, data, cases.REDUCED), data, cases.REDUCED, cases.AVX2)
    assert reduced.error < 0.05
    assert max(one.overflow for one in reduced.layers) == 0


@pytest.mark.parametrize("engine", kernels.ENGINES)
def test_every_kind_of_a_layers_product_is_timed_and_counted(engine, tmp_path):
    source, data = cases.convolutions(tmp_path, 8), cases.normal(cases.IMAGE, count=1)
    begin = time.process_time()
    rates, rest = probes.rates(source, data[0], engine)
    assert time.process_time() - begin < 8
    assert rates[-1].layer == ""
    assert sum(rate.count for rate in rates[:-1]) == 4
    assert rest >= 0
    more = {"onnx_runtime": {"signed", "dynamic", "boundary"}, "openvino": {"signed", "boundary"}, "compiled": set()}
    kinds = {"fp32", "unsigned"} | more[engine]
    for rate in rates:
        for kind in kinds:
            series = getattr(rate, kind)
            assert len(series) == probes.ROUNDS
            assert min(series) > 0
    assert min(rates[-1].fp32) > min(rates[0].fp32)  # seventeen million multiplications take longer than half a million


@pytest.mark.parametrize("channels", [8, 64])
def test_the_layers_timings_predict_what_the_whole_graph_does(channels, tmp_path):
    """Of K1's small network and of one eight times as wide, within a factor of two: here, on one thread, in CPU time."""
    source, data = cases.convolutions(tmp_path, channels), cases.normal(cases.IMAGE)
    built = cases.static(source, data, cases.REDUCED)
    rates, rest = probes.rates(source, data[0], "onnx_runtime")
    predicted = [sum(one.count * min(getattr(one, kind)) for one in rates[:-1]) + rest for kind in ("unsigned", "fp32")]

    def best(path):
        answer, seconds = probes.answer_of(path), []
        for _ in range(100):
            begin = time.thread_time()
            answer(data[0])
            seconds.append(time.thread_time() - begin)
        return min(seconds)

    assert predicted[0] / predicted[1] == pytest.approx(best(built) / best(source), rel=0.5)


def test_facts_are_read_from_both_formats_of_a_quantized_file(tmp_path):
    source, data = cases.linear_layers(tmp_path), cases.normal((32, 128))
    asked = replace(cases.REDUCED, per_channel=False)
    for quantization, operator_format in ((cases.STATIC, False), (asked, True)):
        layers = facts.built_layers(cases.static(source, data, quantization, operator_format))
        assert set(layers) == {"linear0", "linear1", "linear2"}
        low, high = facts.ranges(source, data)["linear0"]
        for name, layer in layers.items():
            assert layer.per_channel is quantization.per_channel
            assert layer.limit == pytest.approx(64 if quantization.reduce_range else 127, abs=1)
            assert layer.low < 0 < layer.high, name
        assert (layers["linear0"].low, layers["linear0"].high) == pytest.approx((low, high), rel=0.02)


def test_signed_activations_are_seen_in_the_graph_that_runs(case):
    assert case("signed_activations").evidence.signed == 1
    assert case("static linear layers").signed == 0


def test_evidence_and_causes_survive_json(case):
    evidence = case("saturation").evidence
    assert Evidence.from_json(evidence.to_json()) == evidence
    (cause,) = explain(evidence)
    assert Cause.from_json(cause.to_json()) == cause


def test_k7_a_file_in_training_mode_is_explained_though_no_engine_accepts_it(tmp_path, own_store):
    cases.training_mode(tmp_path)
    config = RunConfig(model=str(tmp_path / "fp32.onnx"), engine="onnx_runtime", precision="int8", scheme="static", threads=1)
    (cause,) = explain(quantize.gather(config))
    assert cause.name == "training_mode"
    assert "BatchNormalization norm0" in cause.evidence
    with pytest.raises(ParameterError, match="eval"):
        quantize.verify(config, cause)
    (tmp_path / "good").mkdir()
    good = cases.convolutions(tmp_path / "good", 8)
    cured = quantize.verify(config, cause, cured=config.replace(model=str(good)))
    assert cured.cured is True
    assert cured.gain.low > 100


def test_the_road_names_saturation_where_it_happens_and_the_cure_is_measured(own_store):
    config = RunConfig(
        model="quantization_cases:bright_model",
        engine="onnx_runtime",
        precision="int8",
        scheme="static",
        calibration=8,
        reduce_range="off",
        threads=1,
    )
    evidence = quantize.gather(config)
    found = [cause for cause in explain(evidence) if cause.symptom == "wrong"]
    assert [cause.name for cause in found] == (["saturation"] if probes.saturates("onnx_runtime") else [])
    assert evidence.census.share() == 1
    assert {rate.layer for rate in evidence.measured} == {layer.name for layer in evidence.census.layers}
    if found:
        done = quantize.verify(config, found[0])
        assert done.cured is True
        assert done.gain.low > 2
        assert done.evidence.startswith("The error of the outputs goes from 0.")


@pytest.mark.parametrize(
    ("before", "after", "cured", "word"),
    [
        (0.5, 0.03, True, " Cured"),
        (0.9, 0.6, False, "Better, but not cured"),
        (0.3, 0.6, False, "Not cured"),
        (0.3, 0.31, None, "Too noisy"),
    ],
)
def test_a_cure_of_wrongness_must_leave_little_error(before, after, cured, word, monkeypatch):
    monkeypatch.setattr(cure, "_errors", lambda *configs: [[before * (1 + 0.01 * item) for item in range(8)], [after] * 8])
    cause = Cause("saturation", "wrong", "s", "e", "c", Estimate(3, 2, 4), {"reduce_range": "on"})
    found = quantize.verify(RunConfig(engine="onnx_runtime", precision="int8"), cause)
    assert found.cured is cured
    assert word in found.evidence


@pytest.mark.parametrize(("times", "cured"), [(1.6, True), (0.7, False), (None, None)])
def test_a_cure_of_slowness_is_judged_by_the_road(times, cured, monkeypatch):
    asked = []
    wall = (0.5, 2.0, 0.6, 1.7, 0.9, 1.2, 1.0) if times is None else (times,) * 7

    def compared(configs):
        asked.extend(configs)
        return Comparison((), (Verdict("a", "b", wall=wall, cpu=wall),))

    monkeypatch.setattr(cure, "compare", compared)
    config = RunConfig(model="tiny-cnn", engine="onnx_runtime", precision="int8")
    cause = Cause("small_channels", "slow", "s", "e", "c", Estimate(1.5, 1.4, 1.6), {"precision": "fp32"})
    found = quantize.verify(config, cause)
    assert found.cured is cured
    assert found.evidence.startswith({True: "Cured: 1.60", False: "Not cured: 0.70", None: "Too noisy"}[cured])
    assert found.evidence.endswith("predicted 1.50.")
    assert [one.precision for one in asked] == ["int8", "fp32"]
