"""Ceilings and what a model costs: arithmetic on figures made for the test, the sampling on a fake clock, and one real run."""

import dataclasses
import itertools
import sys
import tempfile

import machines
import numpy as np
import pytest

from accel_helpers import environment
from accel_helpers.environment import Ceilings, Limit, bound, ceilings, cost, findings, render, route, share
from accel_helpers.environment.ceilings import _wanted
from accel_helpers.environment.probe import ROUNDS, Probe, judged, measure, probes_of, run, sample
from accel_helpers.errors import ModelError, UnsupportedError
from accel_helpers.models import Model
from accel_helpers.records import Check

QUIET = Check("quiet machine", True, "others took 1%", fatal=False)


def gemm(precision, threads, rate, size=1024, **changes):
    """A product that was measured at that many operations a second, and half of it under disturbance."""
    work = 2.0 * size**3
    return Limit("gemm", precision, "cpu", threads, work, size, (work / rate, 2 * work / rate, 2 * work / rate), **changes)


MADE = Ceilings(
    machines.ZEN4,
    (
        Limit("copy", "", "cpu", 1, 2e9, 10**9, (0.2, 0.1, 0.4)),
        Limit("read", "", "cpu", 1, 1e9, 10**9, (0.1,)),
        Limit("copy", "", "cpu", 4, 2e9, 10**9, (0.05, 0.05)),
        Limit("read", "", "cpu", 4, 1e9, 10**9, (0.02, 0.04)),
        gemm("fp32", 1, 1e11, 512),
        gemm("fp32", 1, 0.5e11, 1024),
        gemm("fp32", 4, 3e11),
        gemm("bf16", 1, 2e11),
        gemm("bf16", 4, 1.5e11),  # a neighbour was there: still no less than one thread can do
        Limit("gemm", "int8", "cpu", 1, 0, 0, reason="this processor has no INT8 instructions"),
        Limit("dispatch", "", "cpu", 1, 1, 1, (2e-6, 1e-6)),
    ),
    QUIET,
)


def test_best_and_median_of_the_raw_samples():
    one = MADE.limits[0]
    assert one.best == pytest.approx(2e10)
    assert one.median == pytest.approx(1e10)
    assert MADE.limits[-2].best == MADE.limits[-2].median == 0


@pytest.mark.parametrize(
    ("asked", "rate"),
    [
        ({"what": "gemm", "precision": "fp32", "threads": 1}, 1e11),  # the better size
        ({"what": "gemm", "precision": "fp32", "threads": 4}, 3e11),
        ({"what": "gemm", "precision": "fp32", "threads": 3}, 3e11),  # between two counts: the larger, so that it stays a limit
        ({"what": "gemm", "precision": "fp32", "threads": 16}, 3e11),
        ({"what": "gemm", "precision": "fp32"}, 3e11),
        ({"what": "gemm", "precision": "bf16"}, 2e11),
        ({"what": "dispatch"}, 1e6),
    ],
)
def test_rate(asked, rate):
    assert MADE.rate(**asked) == pytest.approx(rate)


@pytest.mark.parametrize(("threads", "rate"), [(1, 2e10), (4, 5e10), (0, 5e10)])
def test_bandwidth_is_the_faster_of_copying_and_reading(threads, rate):
    assert MADE.bandwidth(threads=threads) == pytest.approx(rate)


@pytest.mark.parametrize(
    ("precision", "device", "why"),
    [("int8", "cpu", "no INT8 instructions"), ("fp16", "cpu", "it was not measured"), ("fp32", "cuda", "fp32 on cuda")],
)
def test_a_type_without_a_figure_says_why(precision, device, why):
    with pytest.raises(UnsupportedError, match=why):
        bound(MADE, 1e9, 1e6, precision, device)


@pytest.mark.parametrize(
    ("flops", "moved", "precision", "threads", "seconds"),
    [
        (3e11, 1e9, "fp32", 4, 1.0),  # arithmetic decides
        (3e9, 5e10, "fp32", 4, 1.0),  # memory decides
        (1e11, 1e9, "fp32", 1, 1.0),
        (2e11, 1e9, "bf16", 1, 1.0),
    ],
)
def test_bound_and_share(flops, moved, precision, threads, seconds):
    assert bound(MADE, flops, moved, precision, threads=threads) == pytest.approx(seconds)
    assert share(MADE, flops, moved, precision, 4 * seconds, threads=threads) == pytest.approx(0.25)


def test_json_both_ways():
    assert Ceilings.from_json(MADE.to_json()) == MADE


def test_page_shows_figures_reasons_and_the_state_of_the_machine():
    there = machines.ZEN4
    page = render(there, findings(there, machines.DECLARED), route(there), MADE)
    for words in ("fp32 product", "300.0 GFLOP/s", "20.0 GB/s", "1.00 us", "No int8 on cpu: this processor has no INT8 instructions."):
        assert words in page
    assert "The machine was quiet" in page
    loud = dataclasses.replace(MADE, quiet=Check("quiet machine", False, "others took 40%", fatal=False))
    assert "NOT quiet" in render(there, (), (), loud)


@pytest.mark.parametrize(
    ("there", "refused"),
    [
        (machines.AMX, set()),
        (machines.ZEN4, set()),
        (machines.ICE_LAKE, {("cpu", "bf16")}),
        (machines.OLD_LAPTOP, {("cpu", "bf16"), ("cpu", "int8")}),
        (machines.RASPBERRY, {("cpu", "bf16")}),
        (machines.GRAVITON3, set()),
        (machines.H200, set()),
        (machines.T4, {("cuda", "bf16"), ("cuda", "tf32"), ("cuda", "fp8")}),
    ],
)
def test_types_without_instructions_are_refused_with_the_reason(there, refused):
    wanted, not_wanted = _wanted(there)
    assert {(one.device, one.precision) for one in not_wanted} == refused
    assert all(one.reason for one in not_wanted)
    assert {one.what for one in wanted} == {"copy", "read", "gemm", "dispatch"}
    assert {one.device for one in wanted} == ({"cpu", "cuda"} if there.gpus else {"cpu"})
    assert not {(one.device, one.precision) for one in wanted} & refused


class Machine:
    """A clock that probes move on: each call takes its seconds, the next ones in its list or the last for ever."""

    def __init__(self):
        self.now = 0.0
        self.order = []

    def probe(self, name, *seconds, calls=1):
        left = list(seconds)

        def call():
            self.order.append(name)
            self.now += left.pop(0) if len(left) > 1 else left[0]

        return Probe(Limit("copy", name, "cpu", 1, 1.0, 1), call, lambda: None, calls)


def test_probes_take_turns_until_the_time_is_over():
    there = Machine()
    first, second = measure([there.probe("a", 3.0, 1.0), there.probe("b", 2.0)], 20.0, lambda: there.now)
    assert there.order == ["a", "b"] * 6
    assert first.samples == (3.0, *[1.0] * 5)
    assert second.samples == (2.0,) * 6


def test_slow_probes_still_give_a_few_samples():
    there = Machine()
    (only,) = measure([there.probe("a", 100.0)], 1.0, lambda: there.now)
    assert only.samples == (100.0,) * ROUNDS


def test_nothing_to_probe():
    assert measure([], 1.0) == []


def test_a_sample_ends_when_the_device_has_finished():
    there = Machine()
    queued = []
    probe = Probe(Limit("copy", "", "cuda", 1, 1.0, 1), lambda: queued.append(2.0), lambda: _drain(there, queued), 4)
    assert sample(probe, lambda: there.now) == 2.0


def _drain(there, queued):
    there.now += sum(queued)
    queued.clear()


@pytest.mark.parametrize("what", ["copy", "gemm", "dispatch"])
def test_a_device_that_pytorch_cannot_use_leaves_a_reason(what):
    import torch

    device = f"cuda:{torch.cuda.device_count()}"  # the one after the last, or the first of none
    (found,) = run([Limit(what, "fp32", device, 1, 0, 0)], 0.1, 2**20)
    assert found.reason
    assert not found.samples


def test_a_type_far_slower_than_fp32_has_a_reason_in_place_of_a_figure():
    limits = [gemm("fp32", 1, 1e11), gemm("int8", 1, 2e10, 512), gemm("int8", 1, 1e10), gemm("bf16", 1, 0.6e11), MADE.limits[0]]
    fp32, small, large, bf16, copy = judged(limits)
    assert (fp32, bf16, copy) == (limits[0], limits[3], limits[4])
    assert small.samples == large.samples == ()
    assert "no fast INT8 product here: it runs at 20% of FP32's rate" in small.reason


@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
def test_products_double_until_one_takes_long_enough(precision):
    import torch

    with torch.inference_mode():
        probes = list(probes_of(Limit("gemm", precision, "cpu", 1, 0, 0), 0))
    sizes = [one.limit.size for one in probes]
    assert sizes[:2] == [512, 1024]
    assert all(after == 2 * before for before, after in itertools.pairwise(sizes))
    assert all(one.limit.work == 2 * one.limit.size**3 for one in probes)


@pytest.fixture
def slot(tmp_path, monkeypatch):
    """A measurement slot of its own: whether another measurement is running is not the question here."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def test_a_dead_process_leaves_reasons(slot, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    measured = ceilings(0.1)
    assert measured.limits
    assert not any(one.samples for one in measured.limits)
    dead = [one.reason for one in measured.limits if one.work == 0 and one.precision in ("", "fp32")]
    assert dead
    assert all("the process that measures failed" in reason for reason in dead)
    with pytest.raises(UnsupportedError, match="the process that measures failed"):
        measured.rate("gemm", "fp32")


def test_this_machine(slot):
    here = environment.describe()
    measured = ceilings(0.6)
    assert measured.environment == here
    for one in measured.limits:
        assert bool(one.samples) != bool(one.reason)
        assert len(one.samples) >= ROUNDS or one.reason
        assert one.best >= one.median
    assert {one.precision for one in measured.limits if one.what == "gemm" and one.device == "cpu"} == {"fp32", "bf16", "int8"}
    assert {one.threads for one in measured.limits if one.device == "cpu"} == {1, here.cpus}
    assert 2e8 < measured.bandwidth() < 5e12
    assert 1e9 < measured.rate("gemm", "fp32") < 1e15
    assert 1e-8 < 1 / measured.rate("dispatch") < 1e-3
    assert Ceilings.from_json(measured.to_json()) == measured


def made(forward, parts, inputs):
    """A Model of those modules, with that forward and those inputs by name for a batch and a sequence."""

    def build():
        import torch

        module = type("Made", (torch.nn.Module,), {"forward": forward})()
        for name, make in parts.items():
            setattr(module, name, make(torch.nn))
        return module.eval()

    return Model("made", lambda batch, sequence, seed: inputs(batch, sequence), {}, ("y",), "f", build=build)


def floats(*shape):
    return np.ones(shape, np.float32)


def test_cost_of_a_linear_layer():
    model = made(lambda self, x: self.a(x), {"a": lambda nn: nn.Linear(8, 4)}, lambda batch, _: {"x": floats(batch, 8)})
    found = cost(model, 3)
    assert found.flops == 2 * 3 * 8 * 4
    assert found.bytes_weights == 4 * (8 * 4 + 4)
    assert found.bytes_activations == 4 * 3 * 4
    assert found.least_bytes("bf16") == found.bytes_weights / 2
    assert found.least_bytes("fp32") == found.bytes_weights


def test_cost_of_a_convolution():
    model = made(
        lambda self, x: self.a(x), {"a": lambda nn: nn.Conv2d(3, 16, 3, padding=1)}, lambda batch, _: {"x": floats(batch, 3, 10, 10)}
    )
    found = cost(model, 2)
    assert found.flops == 2 * 2 * 16 * 10 * 10 * 3 * 9
    assert found.bytes_activations == 4 * 2 * 16 * 10 * 10


def test_cost_of_attention_on_the_cpu():
    def forward(self, x):
        import torch

        return torch.nn.functional.scaled_dot_product_attention(x, x, x)

    found = cost(made(forward, {}, lambda batch, sequence: {"x": floats(batch, 4, sequence, 16)}), 2, 32)
    assert found.flops == 2 * 2 * 2 * 4 * 32 * 32 * 16  # two products of (32, 16) and (32, 32), for each of 4 heads and 2 items
    assert found.bytes_weights == 0


def test_cost_of_a_recurrent_layer():
    model = made(lambda self, x: self.a(x)[0], {"a": lambda nn: nn.LSTM(8, 16)}, lambda batch, sequence: {"x": floats(sequence, batch, 8)})
    assert cost(model, 3, 5).flops == 2 * 5 * 3 * (4 * 16 * 8 + 4 * 16 * 16)


def test_an_embedding_costs_the_rows_that_are_looked_up_and_an_unused_weight_nothing():
    parts = {"table": lambda nn: nn.Embedding(1000, 16), "unused": lambda nn: nn.Linear(500, 500)}
    model = made(lambda self, x: self.table(x), parts, lambda batch, sequence: {"x": np.zeros((batch, sequence), np.int64)})
    assert cost(model, 2, 7).bytes_weights == 2 * 7 * 16 * 4
    assert cost(model, 500, 7).bytes_weights == 1000 * 16 * 4  # never more than the table


def test_a_weight_used_twice_is_read_once_and_views_cost_nothing():
    def forward(self, x):
        self.b.weight.t()
        return self.a(self.a(x)).view(-1)

    parts = dict.fromkeys("ab", lambda nn: nn.Linear(8, 8, bias=False))
    found = cost(made(forward, parts, lambda batch, _: {"x": floats(batch, 8)}), 3)
    assert found.bytes_weights == 4 * 8 * 8
    assert found.bytes_activations == 2 * 4 * 3 * 8


def test_an_onnx_file_has_no_cost_to_count():
    model = dataclasses.replace(made(None, {}, None), build=None)
    with pytest.raises(ModelError, match="no PyTorch network"):
        cost(model)
