"""Training with quantization in place gives back what quantizing after training loses."""

from dataclasses import replace

import pytest
import small_models

from accel_helpers import models
from accel_helpers.errors import UnsupportedError
from accel_helpers.intervals import paired
from accel_helpers.models import digits
from accel_helpers.quantize.qat import bit_widths


@pytest.fixture(scope="module")
def three_bits():
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    # one epoch instead of the recipe's two: enough to see it
    model = replace(models.get("digits"), train=lambda network: digits.fit(network, epochs=1, rate=0.002))
    (found,) = bit_widths(model, (3,))
    torch.set_num_threads(before)
    return found


def test_training_gives_back_most_of_what_three_bits_lose(three_bits):
    lost, left = (three_bits.fp32.value - score.value for score in (three_bits.ptq, three_bits.qat))
    assert lost > 0.2, "the experiment must lose something"
    assert left < lost / 2


def test_the_gain_is_beyond_chance_on_the_same_samples(three_bits):
    gain = paired(three_bits.qat.changes(three_bits.ptq))
    assert three_bits.qat.samples == 1000
    assert gain.low > 0.05
    assert gain.value == pytest.approx(three_bits.qat.value - three_bits.ptq.value)


def test_seconds_are_those_of_each_way(three_bits):
    assert three_bits.ptq_seconds > 0
    assert three_bits.qat_seconds > 0


def test_a_model_without_a_recipe_is_told_so():
    with pytest.raises(UnsupportedError, match="brings no training recipe"):
        bit_widths(small_models.linear(), (8,))
