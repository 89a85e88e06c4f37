"""The vector-instruction experiment: its arithmetic on made-up rounds, and one short run."""

import pytest

from accel_helpers import environment, instructions
from accel_helpers.errors import MeasurementError
from accel_helpers.instructions import Effect
from accel_helpers.records import Round


def _rounds(cpu):
    return tuple(Round((cpu,) * 4, 4 * cpu) for _ in range(8))


def test_the_speedup_is_held_back_over_native_and_the_bandwidth_is_bytes_over_time():
    effect = Effect(_rounds(0.01), {"AVX2": _rounds(0.02), "SSE41": _rounds(0.04)}, _rounds(instructions.MOVED_BYTES / 10e9))
    assert effect.speedup("AVX2").value == pytest.approx(2.0)
    assert effect.speedup("SSE41").value == pytest.approx(4.0)
    assert effect.bandwidth.value == pytest.approx(10e9)


def test_a_short_run_on_this_machine():
    effect = instructions.effect(rounds=6, calls=2)
    assert len(effect.native) == len(effect.vector) == 6
    assert all(len(one.wall) == 2 for one in effect.native)
    if "avx2" in environment.describe().isa:
        assert effect.speedup("SSE41").low > 1.2  # four lanes without fused multiply-add against eight with
    assert 1e8 < effect.bandwidth.value < 1e13


def test_a_dead_process_is_one_message():
    with instructions._Product("matrix", "DEFAULT") as product:
        product._process.kill()
        product._process.wait()
        with pytest.raises(MeasurementError, match="ended with code"):
            product.round(1)
