import dataclasses

import numpy as np
import pytest
import small_models

from accel_helpers.accuracy import Budget
from accel_helpers.config import RunConfig
from accel_helpers.errors import ParameterError
from accel_helpers.models import Dataset, Split, metrics
from accel_helpers.quantize import mixed

CONFIG = RunConfig(model="outlier channel", engine="onnx_runtime", precision="int8", scheme="static", calibration=64, threads=1)


def network():
    """Four linear layers; what the third reads has one channel a thousand times larger than the others."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layers = [torch.nn.Linear(8, 32), torch.nn.Linear(32, 32), torch.nn.Linear(32, 32), torch.nn.Linear(32, 4)]
        with torch.no_grad():
            layers[1].weight[0] *= 1000
            layers[1].bias[0] = 1000.0
            layers[2].weight[:, 0] /= 1000
            body = torch.nn.Sequential(layers[0], torch.nn.GELU(), layers[1], torch.nn.GELU(), layers[2], torch.nn.GELU(), layers[3])
            logits = body(torch.randn(500, 8))
            layers[3].weight /= logits.std(dim=0)[:, None]
            layers[3].bias.copy_((layers[3].bias - logits.mean(dim=0)) / logits.std(dim=0))  # so that all classes occur
        return body


class _Named:
    """The network as ``forward(x)``."""

    def __new__(cls):
        import torch

        body = network()
        named = type("Outlier", (torch.nn.Module,), {"forward": lambda self, x: self.body(x)})()
        named.body = body
        return named


def dataset():
    """Inputs whose class the FP32 network tells without doubt."""
    import torch

    inputs = np.random.default_rng(0).normal(size=(4000, 8)).astype(np.float32)
    with torch.inference_mode():
        logits = network()(torch.from_numpy(inputs)).numpy()
    ordered = np.sort(logits, axis=1)
    sure = np.flatnonzero(ordered[:, -1] - ordered[:, -2] > 0.1 * logits.std())[:300]
    labels = logits.argmax(axis=1)
    return Dataset(*(Split({"x": inputs[rows]}, labels[rows]) for rows in (sure[:100], sure[100:])))


def outlier(**more):
    return small_models.of(_Named, "outlier channel", outputs=("logits",), dataset=dataset, metric=metrics.classification(), **more)


@pytest.fixture(scope="module")
def found():
    return mixed.greedy(outlier(), CONFIG, Budget(loss=0.02))


def test_greedy_keeps_exactly_the_layer_that_reads_an_outlier_channel(found):
    assert found.reached
    assert len(found.final.keep) == 1
    worst = found.order[0]
    assert found.config.keep == worst
    first = found.path[0]
    assert (first.built, first.keep) == (True, ())
    assert first.check.passed is False
    assert first.score.value < 0.9 < found.final.score.value


def test_the_layer_kept_reads_the_outlier_channel(found):
    from accel_helpers.quantize import sensitivity
    from accel_helpers.records import Quantization

    seen = sensitivity.ranges(outlier(), Quantization("static", calibration=64))
    widest = max(seen, key=lambda one: one.high - one.low)
    assert widest.layers == (found.config.keep,)


def test_the_final_mix_was_built_and_not_only_simulated(found):
    assert found.final.built
    assert found.final.check.passed is not False
    assert found.path[0].share == 1
    assert found.final.share == pytest.approx(1 - 32 * 32 / (8 * 32 + 2 * 32 * 32 + 32 * 4))
    assert found.final.alone_snr < 20
    assert any(not step.built for step in found.path)


def test_every_step_is_told_and_the_record_survives_json():
    told = []
    made = mixed.greedy(outlier(), CONFIG, Budget(loss=1.0), watch=told.append)
    assert made.path == tuple(told)
    assert made.reached
    assert made.config.keep == ""
    assert mixed.Mixed.from_json(made.to_json()) == made


def test_a_model_without_labels_is_judged_by_its_outputs():
    unlabelled = dataclasses.replace(outlier(), metric=None)
    made = mixed.greedy(unlabelled, CONFIG, Budget(cosine=0.999))
    assert made.reached
    assert made.path[0].cosine < 0.999 <= made.final.cosine
    assert made.final.score is None


def test_a_budget_that_no_mix_reaches_says_so():
    made = mixed.greedy(dataclasses.replace(outlier(), metric=None), CONFIG, Budget(cosine=1.0))
    assert not made.reached
    assert len(made.final.keep) == len(made.order) - 1


def test_a_mix_that_the_engine_refuses_is_a_step_that_failed(monkeypatch):
    from accel_helpers.engines import onnx_runtime
    from accel_helpers.errors import UnsupportedError

    build = onnx_runtime.OnnxRuntime.build

    def refuse(self, model, plan, out):
        if plan.quantization.keep:
            raise UnsupportedError("This mix is refused.")
        return build(self, model, plan, out)

    monkeypatch.setattr(onnx_runtime.OnnxRuntime, "build", refuse)
    made = mixed.greedy(outlier(), CONFIG, Budget(loss=0.02))
    assert not made.reached
    assert made.final.check.detail == "This mix is refused."
    assert made.final.snr is None


@pytest.mark.parametrize(
    ("changes", "budget", "what"),
    [
        ({"engine": "pytorch"}, Budget(), "layer by layer"),
        ({"scheme": "dynamic"}, Budget(), "layer by layer"),
        ({"precision": "fp32"}, Budget(), "layer by layer"),
    ],
)
def test_what_cannot_be_mixed_is_refused(changes, budget, what):
    with pytest.raises(ParameterError, match=what):
        mixed.greedy(outlier(), CONFIG.replace(**changes), budget)


def test_without_labels_and_without_a_least_cosine_nothing_is_searched():
    with pytest.raises(ParameterError, match="least cosine"):
        mixed.greedy(dataclasses.replace(outlier(), metric=None), CONFIG)
