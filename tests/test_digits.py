"""The digits network: trained by the project, judged on digits it never saw, and trainable further."""

import os
from pathlib import Path

import numpy as np
import pytest

from accel_helpers import models
from accel_helpers.models import digits

MODEL = models.get("digits")


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def accuracy(network):
    import torch

    held_out = MODEL.dataset().validation
    with torch.no_grad():
        logits = network(torch.from_numpy(held_out.inputs["pixel_values"])).numpy()
    return MODEL.metric.function({"logits": logits}, held_out.labels)


def test_the_trained_network_reaches_its_figure_on_digits_held_out():
    """Training sums in another order on another processor, so that the figure is met within what chance does to 1,000 digits."""
    assert accuracy(MODEL.build()) == pytest.approx(MODEL.metric.published, abs=0.015)
    assert len(MODEL.dataset().validation) == 1000


def test_calibration_and_validation_share_no_digit():
    data = MODEL.dataset()
    seen = {one.tobytes() for one in digits.digits()["pictures"][:-1000]}
    assert len(seen) > 3900
    assert not [one for one in digits.digits()["pictures"][-1000:] if one.tobytes() in seen]
    assert len(data.calibration) == 512
    assert sorted(set(data.calibration.labels)) == sorted(set(data.validation.labels)) == list(range(10))


def test_folding_batch_norms_changes_no_answer():
    import torch

    from accel_helpers.models.networks import Digits

    torch.manual_seed(1)
    network = Digits()
    pictures = torch.from_numpy(MODEL.example(8, 1, 0)["pixel_values"])
    for _ in range(3):
        network(pictures)  # gives the norms statistics that are not those they start with
    with torch.no_grad():
        before = network.eval()(pictures)
        assert torch.allclose(network.folded()(pictures), before, atol=1e-5)
    assert not [one for one in network.modules() if isinstance(one, torch.nn.BatchNorm2d)]


def test_training_further_keeps_the_figure(monkeypatch):
    import torch

    torch.manual_seed(0)
    network = MODEL.build()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    digits.fit(network, epochs=1, rate=0.002)
    assert any(not torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert not network.training
    assert accuracy(network) > 0.93


def test_examples_differ_by_row_and_seed():
    one, other = (MODEL.example(16, 1, seed)["pixel_values"] for seed in (0, 1))
    assert one.shape == (16, 1, 28, 28)
    assert one.dtype == np.float32
    assert len({row.tobytes() for row in one}) == 16
    assert not np.array_equal(one, other)
    assert 0 <= one.min() < one.max() <= 1


def test_weights_are_trained_once(monkeypatch):
    MODEL.build()
    monkeypatch.setattr(digits, "_trained", lambda: pytest.fail("trained again"))
    MODEL.build()
    assert list(Path(os.environ.get("ACCEL_STORE", "data/store")).glob("assets/derived/digits-network-*"))
