"""The panel without a browser: what follows from a choice, who is told why not, and what happens while a measurement runs."""

import os
import sys
import tempfile
import threading
import time
from functools import partial
from types import SimpleNamespace

import plotly.graph_objects as go
import pytest
from example_records import measurement, rounds
from processes import workers
from synthetic import FakeClock

from accel_helpers import bench, panel
from accel_helpers.bench import Progress, plan_of, road
from accel_helpers.config import DEVICES, PRECISIONS, RunConfig
from accel_helpers.device import measuring
from accel_helpers.engine import YES, Support
from accel_helpers.errors import MeasurementError, ParameterError, StoppedError
from accel_helpers.panel import state as states
from accel_helpers.panel import widgets
from accel_helpers.panel.state import CHOICES, State

FAST = RunConfig(model="tiny-cnn", engine="null", rounds=6, seconds=0.1)
NO_BF16 = "this CPU has no bf16 unit"


@pytest.fixture(scope="module", autouse=True)
def own_store(tmp_path_factory):
    """A store of this module's own, for the worker processes too, and a measurement lock that no other run on this machine holds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ACCEL_STORE", str(tmp_path_factory.mktemp("store")))
        patch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("lock")))
        yield


@pytest.fixture
def no_bf16(monkeypatch):
    monkeypatch.setattr(bench, "support", lambda config: Support(False, NO_BF16) if config.precision == "bf16" else YES)


def progress(done, config=FAST):
    return Progress("measuring", (plan_of(config),), done, config.rounds, (rounds(0.01, count=done),))


def until(condition, timeout=20):
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class FakeRun:
    """Stands in for ``bench.measure``: waits until the test lets it go on."""

    def __init__(self, monkeypatch):
        self.configs, self.go, self.error = [], threading.Event(), None
        monkeypatch.setattr(bench, "measure", self)

    def __call__(self, config, watch, stop):
        self.configs.append(config)
        self.watch = watch
        while not self.go.is_set():
            if stop():
                raise StoppedError("Stopped.")
            time.sleep(0.005)
        if self.error:
            raise self.error
        return measurement(0.01, plan_of(config), model=config.model)


@pytest.fixture
def run(monkeypatch):
    fake = FakeRun(monkeypatch)
    yield fake
    fake.go.set()


@pytest.fixture
def shown():
    """A panel; its thread has ended when the test has."""
    one = widgets.Panel(State(FAST))
    yield one
    one.stop.click()
    if one._thread:
        one._thread.join(20)
        assert not one._thread.is_alive()


def test_every_option_is_offered_and_the_impossible_ones_say_why(no_bf16):
    found = states.options(FAST, "precision")
    assert [option.value for option in found] == list(PRECISIONS)
    assert {option.value: option.reason for option in found if option.reason} == {"bf16": NO_BF16}
    assert states.listed(FAST, "precision") == [("fp32", "fp32"), ("tf32", "tf32"), (f"bf16 — {NO_BF16}", "bf16"), ("fp16", "fp16")]
    assert [option.value for option in states.options(FAST, "device")] == list(DEVICES)
    assert [option.reason for option in states.options(FAST.replace(precision="bf16"), "device")] == [NO_BF16] * len(DEVICES)
    assert "null" in [option.value for option in states.options(FAST, "engine")]


def test_a_real_engine_gives_its_reason_for_tf32_on_a_cpu():
    reasons = {option.value: option.reason for option in states.options(FAST.replace(engine="pytorch"), "precision")}
    assert reasons["fp32"] == ""
    assert len(reasons["tf32"]) > 10


def test_the_list_shortens_a_long_reason_and_leaves_the_chosen_option_plain(monkeypatch):
    """A closed control shows its chosen option, which is as short as the others; the status says the rest."""
    monkeypatch.setattr(bench, "support", lambda config: Support(False, "needs another machine " * 20))
    labels = dict(map(reversed, states.listed(FAST, "precision")))
    assert labels["fp32"] == "fp32"
    assert labels["fp16"].startswith("fp16 — needs another machine")
    assert labels["fp16"].endswith("…")
    assert len(labels["fp16"]) <= 100
    assert states.begin(State(FAST)).message.count("needs another machine") == 20


def test_choosing_gives_a_checked_config_that_runs(no_bf16):
    chosen = states.choose(State(FAST), "batch", 8)
    assert chosen.config == FAST.replace(batch=8)
    assert chosen.running
    with pytest.raises(ParameterError, match="batch=0"):
        states.choose(State(FAST), "batch", 0)


def test_choosing_the_impossible_says_why_and_runs_nothing(no_bf16):
    chosen = states.choose(State(FAST), "precision", "bf16")
    assert not chosen.running
    assert NO_BF16 in chosen.message
    assert "Nothing was measured" in chosen.message


def test_drawing_follows_from_the_state_alone():
    empty = State(FAST)
    running = states.advance(states.begin(empty), progress(3))
    done = states.finish(running, measurement(0.01, plan_of(FAST)))
    charts = [states.draw(state) for state in (empty, running, done)]
    assert [len(chart.figure.data[0].y) for chart in charts[:2]] == [0, 3]
    assert "3 of 6 rounds" in charts[1].sentence
    assert list(charts[2].figure.data[0].x) == [1]
    assert all(isinstance(chart.figure, go.Figure) for chart in charts)
    assert states.draw(running).figure == charts[1].figure


def test_building_shows_what_is_finished_until_the_first_round():
    state = states.finish(State(FAST), measurement(0.01, plan_of(FAST)))
    building = states.advance(states.begin(state), Progress("building", (plan_of(FAST),), 0, 1))
    assert states.draw(building).figure == states.draw(state).figure
    assert building.message.endswith("building.")


def test_finished_measurements_are_kept_one_for_each_plan():
    state = State(FAST)
    for batch, level in ((1, 0.01), (2, 0.02), (1, 0.03)):
        state = states.finish(state, measurement(level, plan_of(FAST.replace(batch=batch))))
    assert [one.plan.batch for one in state.history] == [2, 1]
    assert state.history[1].p50.value > 0.029
    assert "P50 30" in state.message
    assert "VALID" in state.message


def test_the_status_of_a_doubtful_figure_carries_its_reasons():
    state = states.finish(State(FAST), measurement(errors=2))
    assert "INVALID: 2 calls failed" in state.message


def test_redraws_at_most_ten_times_a_second():
    clock = FakeClock()
    throttle = widgets.Throttle(clock=clock)
    drawn = 0
    for _ in range(2000):  # two seconds in steps of a millisecond
        drawn += throttle.ready()
        clock.advance(0.001)
    assert 18 <= drawn <= 20


def test_a_flood_of_rounds_is_drawn_rarely_and_the_end_always(shown, run, monkeypatch):
    clock = FakeClock()
    shown._throttle = widgets.Throttle(clock=clock)
    drawn = []
    monkeypatch.setattr(states, "draw", lambda state, draw=states.draw: drawn.append(state) or draw(state))
    shown.start.click()
    until(lambda: run.configs)
    before = len(drawn)
    for done in range(1, 6):
        run.watch(progress(done))
        clock.advance(0.04)
    assert [state.progress.done for state in drawn[before:]] == [1, 4]
    assert list(shown.figure.data[0].x) == [1, 2, 3, 4]
    run.go.set()
    until(lambda: rested(shown))
    shown._thread.join(5)
    assert drawn[-1] is shown.state
    assert list(shown.figure.data[0].x) == [FAST.batch]


def test_a_change_restarts_with_the_new_choice(shown, run):
    shown.choices["device"].value = "cuda"
    until(lambda: len(run.configs) == 1)
    old = run.watch
    shown.batch.value = 8
    until(lambda: len(run.configs) == 2)
    assert run.configs == [FAST.replace(device="cuda"), FAST.replace(device="cuda", batch=8)]
    old(progress(5))
    assert shown.state.progress is None, "a superseded measurement moved the panel"
    run.go.set()
    until(lambda: rested(shown))
    assert [one.plan.batch for one in shown.state.history] == [8]


def test_the_live_figure_becomes_what_is_drawn(shown, run):
    """In place while the series stay the same, anew when there are others; what a reloaded page will read is stored."""
    run.go.set()
    for batch, precision in ((2, "fp32"), (4, "fp32"), (4, "bf16")):
        shown._enter(lambda state, b=batch, p=precision: states.begin(states.replace(state, config=FAST.replace(batch=b, precision=p))))
        until(lambda: rested(shown))
        shown._thread.join(5)
    wanted = states.draw(shown.state).figure
    assert len(shown.state.history) == 3
    assert [trace.to_plotly_json() for trace in wanted.data] == [
        {key: value for key, value in trace.to_plotly_json().items() if key != "uid"} for trace in shown.figure.data
    ]
    assert shown.figure.layout.title.text == wanted.layout.title.text
    assert shown.figure._widget_layout["title"]["text"] == wanted.layout.title.text
    assert len(shown.figure._widget_data) == len(wanted.data)
    assert shown.state.history[-1].plan.label.split()[1] in shown.below.value


def test_choosing_the_impossible_in_the_panel_starts_nothing(no_bf16, run):
    one = widgets.Panel(State(FAST))
    assert (f"bf16 — {NO_BF16}", "bf16") in one.choices["precision"].options
    one.choices["precision"].value = "bf16"
    assert NO_BF16 in one.status.text
    assert one.stop.disabled
    assert one._thread is None
    assert run.configs == []


def test_a_value_that_runconfig_refuses_is_said_in_the_status(shown):
    shown._chosen("batch", 0)
    assert "batch=0" in shown.status.text
    assert not shown.state.running


def test_an_error_is_text_in_the_status(shown, run):
    run.error = MeasurementError("The process that measured was killed.", "Take a smaller batch.")
    run.go.set()
    shown.start.click()
    until(lambda: rested(shown))
    assert shown.status.text == "The process that measured was killed. Take a smaller batch."
    assert shown.stop.disabled


def test_a_bug_is_said_too_and_its_traceback_kept(shown, run, monkeypatch):
    caught = []
    monkeypatch.setattr(threading, "excepthook", caught.append)
    run.error = ZeroDivisionError("division by zero")
    run.go.set()
    shown.start.click()
    until(lambda: rested(shown))
    shown._thread.join(5)
    assert "ZeroDivisionError" in shown.status.text
    assert [one.exc_type for one in caught] == [ZeroDivisionError]


def rested(panel):
    """Nothing runs, and what follows from it has been drawn: a step and its drawing happen under one lock."""
    with panel._lock:
        return not panel.state.running


def test_a_busy_machine_is_said_in_the_status(shown, monkeypatch):
    monkeypatch.setattr(road, "measuring", partial(measuring, wait=0.2))
    with measuring("a neighbour"):
        shown.start.click()
        until(lambda: rested(shown))
    assert "One measurement at a time: a neighbour" in shown.status.text


def test_a_real_measurement_fills_the_panel_and_stop_ends_another_at_once(shown):
    shown.start.click()
    until(lambda: rested(shown), timeout=40)
    assert [one.plan for one in shown.state.history] == [plan_of(FAST)]
    assert "P50" in shown.status.text
    shown._chosen("batch", 2)
    until(lambda: shown.state.progress is not None)
    until(workers)
    begin = time.monotonic()
    shown.stop.click()
    assert shown.status.text == "Stopped. Finished measurements are kept."
    assert shown.stop.disabled
    until(lambda: not workers(), timeout=5)
    assert time.monotonic() - begin < 1.0
    assert len(shown.state.history) == 1


def test_headless_walks_every_option_and_both_ends_and_gives_a_static_chart(monkeypatch):
    chosen = []
    monkeypatch.setattr(
        states, "choose", lambda state, name, value, real=states.choose: chosen.append((name, value)) or real(state, name, value)
    )
    chart = panel.explore(FAST, largest_batch=16, earlier=[measurement(0.01, plan_of(FAST.replace(batch=4)))])
    assert type(chart.figure) is go.Figure
    wanted = {(name, option.value) for name in CHOICES for option in states.options(FAST, name)} | {("batch", 1), ("batch", 16)}
    assert set(chosen) == wanted
    assert len(wanted) > 8
    assert sorted({row[1] for row in chart.table[1:]}) == ["1", "4"]


def test_headless_a_broken_drawing_fails(monkeypatch):
    monkeypatch.setattr(states, "batch_sweep", lambda history: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        panel.explore(FAST, earlier=[measurement()])


def test_live_means_a_kernel_that_nobody_called_headless(monkeypatch):
    kernel = SimpleNamespace(IPKernelApp=SimpleNamespace(initialized=lambda: True))
    monkeypatch.setitem(sys.modules, "ipykernel.kernelapp", kernel)
    assert os.environ["ACCEL_HEADLESS"]
    assert not panel.live()
    monkeypatch.delenv("ACCEL_HEADLESS")
    assert panel.live()
    kernel.IPKernelApp.initialized = lambda: False
    assert not panel.live()
    monkeypatch.delitem(sys.modules, "ipykernel.kernelapp")
    assert not panel.live()
