"""The panel without a browser: what follows from a choice, who is told why not, and what happens while a measurement runs."""

import dataclasses
import os
import sys
import tempfile
import threading
import time
from functools import partial
from types import SimpleNamespace

import plotly.graph_objects as go
import pytest
from example_records import measurement, rounds, verdict
from processes import workers
from synthetic import FakeClock

from accel_helpers import bench, charts, panel
from accel_helpers.bench import Comparison, Progress, plan_of, road
from accel_helpers.config import DEVICES, PRECISIONS, RunConfig
from accel_helpers.device import measuring
from accel_helpers.engine import YES, Support
from accel_helpers.errors import MeasurementError, ParameterError, StoppedError, UnsupportedError
from accel_helpers.panel import follow, kinds, screen, widgets
from accel_helpers.panel import state as states
from accel_helpers.panel.kinds import Explore, Quantize

FAST = RunConfig(model="tiny-cnn", engine="null", rounds=6, seconds=0.1)
INT8 = RunConfig(model="tiny-cnn", engine="onnx_runtime", precision="int8", scheme="static", calibration=8, rounds=6, seconds=0.1)
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


def alone(one):
    return Comparison((one,), ())


def until(condition, timeout=20):
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class FakeRun:
    """Stands in for ``bench.compare``: waits until the test lets it go on."""

    def __init__(self, monkeypatch):
        self.configs, self.runs, self.go, self.error = [], [], threading.Event(), None
        monkeypatch.setattr(bench, "compare", self)

    def __call__(self, configs, watch, stop, budget):
        self.configs.append(configs[-1])
        self.runs.append(tuple(configs))
        self.watch = watch
        while not self.go.is_set():
            if stop():
                raise StoppedError("Stopped.")
            time.sleep(0.005)
        if self.error:
            raise self.error
        measured = [measurement(0.01 * (2 - place), plan_of(one), model=one.model, seed=place) for place, one in enumerate(configs)]
        return Comparison(tuple(measured), tuple(verdict(measured[0], one) for one in measured[1:]))


@pytest.fixture
def run(monkeypatch):
    fake = FakeRun(monkeypatch)
    yield fake
    fake.go.set()


def opened(state):
    """A panel; its thread has ended when the test has."""
    one = widgets.Panel(state)
    yield one
    one.stop.click()
    if one._thread:
        one._thread.join(20)
        assert not one._thread.is_alive()


@pytest.fixture
def scheme():
    yield from opened(Quantize(INT8))


@pytest.fixture
def shown():
    yield from opened(Explore(FAST))


def test_every_option_is_offered_and_the_impossible_ones_say_why(no_bf16):
    found = states.options(Explore(FAST), "precision")
    assert [option.value for option in found] == list(PRECISIONS)
    assert {option.value: option.reason for option in found if option.reason} == {"bf16": NO_BF16}
    assert states.listed(Explore(FAST), "precision")[:4] == [
        *(("fp32", "fp32"), ("tf32", "tf32")),
        *((f"bf16 — {NO_BF16}", "bf16"), ("fp16", "fp16")),
    ]
    assert [option.value for option in states.options(Explore(FAST), "device")] == list(DEVICES)
    assert [option.reason for option in states.options(Explore(FAST.replace(precision="bf16")), "device")] == [NO_BF16] * len(DEVICES)
    assert "null" in [option.value for option in states.options(Explore(FAST), "engine")]


def test_a_real_engine_gives_its_reason_for_tf32_on_a_cpu():
    reasons = {option.value: option.reason for option in states.options(Explore(FAST.replace(engine="pytorch")), "precision")}
    assert reasons["fp32"] == ""
    assert len(reasons["tf32"]) > 10


def test_the_list_shortens_a_long_reason_and_leaves_the_chosen_option_plain(monkeypatch):
    """A closed control shows its chosen option, which is as short as the others; the status says the rest."""
    monkeypatch.setattr(bench, "support", lambda config: Support(False, "needs another machine " * 20))
    labels = dict(map(reversed, states.listed(Explore(FAST), "precision")))
    assert labels["fp32"] == "fp32"
    assert labels["fp16"].startswith("fp16 — needs another machine")
    assert labels["fp16"].endswith("…")
    assert len(labels["fp16"]) <= 100
    assert states.begin(Explore(FAST)).message.count("needs another machine") == 20


def test_choosing_gives_a_checked_config_that_runs(no_bf16):
    chosen = states.choose(Explore(FAST), "batch", 8)
    assert chosen.config == FAST.replace(batch=8)
    assert chosen.running
    with pytest.raises(ParameterError, match="batch=0"):
        states.choose(Explore(FAST), "batch", 0)


def test_choosing_the_impossible_says_why_and_runs_nothing(no_bf16):
    chosen = states.choose(Explore(FAST), "precision", "bf16")
    assert not chosen.running
    assert NO_BF16 in chosen.message
    assert "Nothing was measured" in chosen.message


def test_drawing_follows_from_the_state_alone():
    empty = Explore(FAST)
    running = states.advance(states.begin(empty), progress(3))
    done = states.finish(running, alone(measurement(0.01, plan_of(FAST))))
    charts = [states.draw(state) for state in (empty, running, done)]
    assert [len(chart.figure.data[0].y) for chart in charts[:2]] == [0, 3]
    assert "3 of 6 rounds" in charts[1].sentence
    assert list(charts[2].figure.data[0].x) == [1]
    assert all(isinstance(chart.figure, go.Figure) for chart in charts)
    assert states.draw(running).figure == charts[1].figure


def test_building_shows_what_is_finished_until_the_first_round():
    state = states.finish(Explore(FAST), alone(measurement(0.01, plan_of(FAST))))
    building = states.advance(states.begin(state), Progress("building", (plan_of(FAST),), 0, 1))
    assert states.draw(building).figure == states.draw(state).figure
    assert building.message.endswith("building.")


def test_finished_measurements_are_kept_one_for_each_plan():
    state = Explore(FAST)
    for batch, level in ((1, 0.01), (2, 0.02), (1, 0.03)):
        state = states.finish(state, alone(measurement(level, plan_of(FAST.replace(batch=batch)))))
    assert [one.plan.batch for one in state.history] == [2, 1]
    assert state.history[1].p50.value > 0.029
    assert "P50 30" in state.message
    assert "VALID" in state.message


def test_the_status_of_a_doubtful_figure_carries_its_reasons():
    state = states.finish(Explore(FAST), alone(measurement(errors=2)))
    assert "INVALID: 2 calls failed" in state.message


def test_redraws_at_most_ten_times_a_second():
    clock = FakeClock()
    throttle = screen.Throttle(clock=clock)
    drawn = 0
    for _ in range(2000):  # two seconds in steps of a millisecond
        drawn += throttle.ready()
        clock.advance(0.001)
    assert 18 <= drawn <= 20


def test_a_flood_of_rounds_is_drawn_rarely_and_the_end_always(shown, run, monkeypatch):
    clock = FakeClock()
    shown.screen.throttle = screen.Throttle(clock=clock)
    drawn = []
    monkeypatch.setattr(states, "draw", lambda state, draw=states.draw: drawn.append(state) or draw(state))
    shown.start.click()
    until(lambda: run.configs)
    before = len(drawn)
    for done in range(1, 6):
        run.watch(progress(done))
        clock.advance(0.04)
    assert [state.progress.done for state in drawn[before:]] == [1, 4]
    assert list(shown.screen.figure.data[0].x) == [1, 2, 3, 4]
    run.go.set()
    until(lambda: rested(shown))
    shown._thread.join(5)
    assert drawn[-1] is shown.state
    assert list(shown.screen.figure.data[0].x) == [FAST.batch]


def test_a_change_restarts_with_the_new_choice(shown, run):
    shown.controls["device"].value = "cuda"
    until(lambda: len(run.configs) == 1)
    old = run.watch
    shown.controls["batch"].value = 8
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
        shown._enter(
            lambda state, b=batch, p=precision: states.begin(dataclasses.replace(state, config=FAST.replace(batch=b, precision=p)))
        )
        until(lambda: rested(shown))
        shown._thread.join(5)
    wanted = states.draw(shown.state).figure
    assert len(shown.state.history) == 3
    assert [trace.to_plotly_json() for trace in wanted.data] == [
        {key: value for key, value in trace.to_plotly_json().items() if key != "uid"} for trace in shown.screen.figure.data
    ]
    assert shown.screen.figure.layout.title.text == wanted.layout.title.text
    assert shown.screen.figure._widget_layout["title"]["text"] == wanted.layout.title.text
    assert len(shown.screen.figure._widget_data) == len(wanted.data)
    assert shown.state.history[-1].plan.label.split()[1] in shown.screen.below.value


def test_choosing_the_impossible_in_the_panel_starts_nothing(no_bf16, run):
    one = widgets.Panel(Explore(FAST))
    assert (f"bf16 — {NO_BF16}", "bf16") in one.controls["precision"].options
    one.controls["precision"].value = "bf16"
    assert NO_BF16 in one.screen.status.text
    assert one.stop.disabled
    assert one._thread is None
    assert run.configs == []


def test_a_value_that_runconfig_refuses_is_said_in_the_status(shown):
    shown._chosen("batch", 0)
    assert "batch=0" in shown.screen.status.text
    assert not shown.state.running


def test_an_error_is_text_in_the_status(shown, run):
    run.error = MeasurementError("The process that measured was killed.", "Take a smaller batch.")
    run.go.set()
    shown.start.click()
    until(lambda: rested(shown))
    assert shown.screen.status.text == "The process that measured was killed. Take a smaller batch."
    assert shown.stop.disabled


def test_a_bug_is_said_too_and_its_traceback_kept(shown, run, monkeypatch):
    caught = []
    monkeypatch.setattr(threading, "excepthook", caught.append)
    run.error = ZeroDivisionError("division by zero")
    run.go.set()
    shown.start.click()
    until(lambda: rested(shown))
    shown._thread.join(5)
    assert "ZeroDivisionError" in shown.screen.status.text
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
    assert "One measurement at a time: a neighbour" in shown.screen.status.text


def test_a_real_measurement_fills_the_panel_and_stop_ends_another_at_once(shown):
    shown.start.click()
    until(lambda: rested(shown), timeout=40)
    assert [one.plan for one in shown.state.history] == [plan_of(FAST)]
    assert "P50" in shown.screen.status.text
    shown._chosen("batch", 2)
    until(lambda: shown.state.progress is not None)
    until(workers)
    begin = time.monotonic()
    shown.stop.click()
    assert shown.screen.status.text == "Stopped. Finished measurements are kept."
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
    wanted = {(name, option.value) for name in Explore.choices for option in states.options(Explore(FAST), name)} | {
        ("batch", 1),
        ("batch", 16),
    }
    assert set(chosen) == wanted
    assert len(wanted) > 8
    assert sorted({row[1] for row in chart.table[1:]}) == ["1", "4"]


def test_headless_a_broken_drawing_fails(monkeypatch):
    monkeypatch.setattr(kinds, "batch_sweep", lambda history: 1 / 0)
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


def test_a_choice_is_measured_after_fp32_of_the_same_engine_and_adds_a_point(scheme, run):
    run.go.set()
    scheme.controls["symmetric"].value = True
    until(lambda: rested(scheme))
    wanted = INT8.replace(symmetric=True)
    assert run.runs == [(wanted.replace(precision="fp32"), wanted)]
    assert [trace.name for trace in scheme.screen.figure.data] == ["baseline", "1 onnx_runtime int8 static cpu b1"]
    assert scheme.screen.figure.data[1].x[0] == pytest.approx(2, rel=0.05)
    assert "onnx_runtime int8 static cpu b1 is faster" in scheme.screen.status.text
    scheme.controls["calibration"].value = 64
    until(lambda: len(run.runs) == 2)
    until(lambda: rested(scheme))
    scheme.start.click()
    until(lambda: len(run.runs) == 3)
    until(lambda: rested(scheme))
    assert [trace.name for trace in scheme.screen.figure.data] == [
        "baseline",
        "1 onnx_runtime int8 static cpu b1, 8 samples",
        "2 onnx_runtime int8 static cpu b1, 64 samples",
    ]
    assert len(scheme.state.verdicts) == 2
    assert {digest for one in scheme.state.verdicts for digest in (one.baseline, one.candidate)} == {
        one.digest for one in scheme.state.history
    }


def test_while_a_choice_runs_the_rounds_of_both_plans_are_drawn():
    state = states.begin(Quantize(INT8))
    plans = tuple(map(plan_of, state.runs(INT8)))
    running = states.advance(state, Progress("measuring", plans, 2, 6, (rounds(0.02, count=2), rounds(0.01, count=2))))
    assert [trace.name for trace in states.draw(running).figure.data] == [plan.label for plan in plans]


def test_fp32_cannot_be_set_against_itself(scheme, run):
    labels = dict(map(reversed, scheme.controls["precision"].options))
    assert labels["fp32"] == "fp32 — FP32 is the baseline that the other precisions are set against"
    scheme.controls["precision"].value = "fp32"
    assert "FP32 is the baseline" in scheme.screen.status.text
    assert run.runs == []
    with pytest.raises(UnsupportedError, match="FP32 is the baseline"):
        panel.quantize(INT8.replace(precision="fp32"))


def test_an_option_that_cannot_run_says_why_even_where_the_baseline_cannot(monkeypatch):
    monkeypatch.setattr(bench, "support", lambda config: Support(False, "no CUDA GPU") if config.engine == "tensorrt" else YES)
    state = Quantize(INT8.replace(engine="tensorrt"))
    assert {option.reason for option in states.options(state, "scheme")} == {"no CUDA GPU"}
    assert states.options(Quantize(INT8), "scheme")[0].reason == ""


def test_a_real_engine_says_which_schemes_it_lacks():
    reasons = {option.value: option.reason for option in states.options(Quantize(INT8), "scheme")}
    assert reasons["static"] == ""
    assert "not by qat" in reasons["qat"]


@pytest.mark.parametrize(
    ("changes", "off"),
    [
        ({}, set()),
        ({"scheme": "dynamic"}, {"calibration", "calibrator"}),
        ({"scheme": "weight_only"}, {"calibration", "calibrator", "symmetric", "reduce_range"}),
        ({"precision": "bf16"}, {"scheme", "calibration", "calibrator", "symmetric", "reduce_range", "per_channel"}),
    ],
)
def test_controls_that_change_nothing_are_switched_off_and_named(changes, off):
    one = widgets.Panel(Quantize(INT8.replace(**changes)))
    assert {name for name, control in one.controls.items() if control.disabled} == off
    assert ("Calibration samples" in one.screen.below.value.rpartition("Switched off")[2]) == bool(off)


def test_every_control_has_its_name_and_shows_the_choice():
    one = widgets.Panel(Quantize(INT8.replace(per_channel=False, calibration=100)))
    assert {name: getattr(control, "label" if hasattr(control, "stops") else "description") for name, control in one.controls.items()} == {
        "engine": "Engine",
        "precision": "Precision",
        "scheme": "Scheme",
        "calibrator": "Calibrator",
        "reduce_range": "Reduce range",
        "calibration": "Calibration samples",
        "batch": "Batch",
        "per_channel": "Per channel",
        "symmetric": "Symmetric",
    }
    assert one.controls["per_channel"].value is False
    samples = one.controls["calibration"]
    assert (samples.value, samples.smallest, samples.largest) == (100, 8, 512)
    assert samples.stops == [8, 16, 32, 64, 100, 128, 256, 512]


def test_headless_quantizes_once_and_walks_both_ends_of_every_control(monkeypatch):
    chosen = []
    monkeypatch.setattr(
        states, "choose", lambda state, name, value, real=states.choose: chosen.append((name, value)) or real(state, name, value)
    )
    chart = panel.quantize(FAST.replace(precision="int8"), 0.02, largest_batch=16)
    assert type(chart.figure) is go.Figure
    assert {("calibration", 8), ("calibration", 512), ("batch", 1), ("batch", 16), ("symmetric", True), ("symmetric", False)} <= set(chosen)
    assert {value for name, value in chosen if name == "reduce_range"} == {"auto", "on", "off"}
    assert [row[0] for row in chart.table[1:]] == ["null int8 static cpu b1"]
    assert chart.figure.layout.annotations[0].text == "budget: 2 points"


def told(plans, stage, done, count, **more):
    return Progress(stage, plans, done, 6, tuple(rounds(0.02 / (place + 1), count=count) for place in range(len(plans))), **more)


def test_a_followed_comparison_draws_speed_round_by_round_and_scores_as_they_come():
    first, *rest = measured = [
        measurement(0.03, plan_of(INT8.replace(precision=name)), seed=n) for n, name in enumerate(("fp32", "bf16", "int8"))
    ]
    plans = tuple(one.plan for one in measured)
    known = follow.Following(plans, 0.01)
    assert len(known.drawn().figure.data) == 1
    known = known.after(Progress("building", plans, 0, 3))
    assert known.message == "3 plans: building (1 of 3)."
    known = known.after(told(plans, "measuring", 2, 2))
    assert [row[5] for row in known.drawn().table[1:]] == ["not scored"] * 2
    partial = Comparison((first, rest[0]), (verdict(first, rest[0], changes=(0,) * 400, score_change=0.0),))
    known = known.after(Progress("judging", plans, 2, 3, finished=partial))
    assert [row[5] for row in known.drawn().table[1:]] == ["no worse", "not scored"]
    assert known.after(Progress("scoring", plans, 2, 3)).drawn().table == known.drawn().table


@pytest.fixture
def watched(monkeypatch):
    """What is displayed while someone watches: each output with what took its place."""
    outputs = []

    def display(shown, **options):
        outputs.append([shown])
        return SimpleNamespace(update=lambda new, raw, place=outputs[-1]: place.append(new))

    monkeypatch.setattr(panel, "live", lambda: True)
    monkeypatch.setattr("IPython.display.display", display)
    return outputs


def test_a_comparison_that_someone_watches_is_drawn_as_its_plans_finish(watched, monkeypatch):
    """A real run of two plans that compute nothing."""
    drawn = []
    monkeypatch.setattr(follow, "REDRAW_SECONDS", 0.0)
    monkeypatch.setattr(follow, "_output", lambda bundle, real=follow._output: drawn.append(bundle) or real(bundle))
    configs = [FAST, FAST.replace(precision="bf16")]
    found = panel.compare_live(configs)
    assert [one.plan for one in found.measurements] == [plan_of(config) for config in configs]
    assert found.verdicts[0].allowed_loss == 0.01
    (status,), (place, figure), words = watched
    assert (status.text, status.running) == ("2 plans are measured.", False)
    assert place.comm is None, "the widget outlives the finished figure"
    series = [[trace["name"] for trace in bundle[charts.MIME]["data"]] for bundle in (*drawn, figure)]
    assert series[0] == ["baseline"]
    assert ["baseline", "1 null bf16 cpu b1, still running"] in series
    assert series[-2:] == [["baseline", "1 null bf16 cpu b1, INVALID"]] * 2
    assert words[-1]["text/plain"] == charts.trade_off(found.measurements, found.verdicts).sentence


def test_a_watched_comparison_that_fails_says_so_and_raises(watched, monkeypatch):
    def fails(configs, **options):
        raise MeasurementError("The process that measured was killed.", "Take a smaller batch.")

    monkeypatch.setattr(bench, "compare", fails)
    with pytest.raises(MeasurementError):
        panel.compare_live([FAST, INT8])
    (status,), *_ = watched
    assert (status.text, status.running) == ("The process that measured was killed. Take a smaller batch.", False)


def test_headless_a_comparison_gives_one_static_chart(monkeypatch):
    base, fast = measurement(0.03), measurement(0.01, plan_of(INT8))
    wanted = Comparison((base, fast), (verdict(base, fast),))
    displayed = []
    monkeypatch.setattr("IPython.display.display", displayed.append)
    monkeypatch.setattr(bench, "compare", lambda configs, scope, budget: wanted)
    assert panel.compare_live([FAST, INT8], 0.02) is wanted
    (chart,) = displayed
    assert type(chart.figure) is go.Figure
    assert "budget of 2 points" in chart.sentence
    with pytest.raises(ParameterError, match="1 plans"):
        panel.compare_live([FAST])
