"""What a notebook says: guesses, reveals, claims, exercises."""

from types import SimpleNamespace

import example_records
import pytest

from accel_helpers import lesson, panel
from accel_helpers.records import Claim, Score
from accel_helpers.store import Store


@pytest.fixture
def shown(monkeypatch):
    """What was displayed, as text or as it is."""
    seen = []
    monkeypatch.setattr(lesson, "display", lambda *items: seen.extend(getattr(item, "data", item) for item in items))
    return seen


def test_headless_the_default_is_the_guess(shown):
    guess = lesson.predict("How many?", 3.0, "times")
    assert guess.value == 3.0
    assert guess.widget is None
    assert "How many?" in shown[0]
    assert "3 times" in shown[1]


def test_live_the_widget_holds_the_guess(shown, monkeypatch):
    monkeypatch.setattr(panel, "live", lambda: True)
    number = lesson.predict("How many?", 3.0, "times")
    number.widget.value = 7.0
    assert number.value == 7.0
    assert number.widget.description == "Your guess (times)"
    word = lesson.predict("Which?", "b", choices=("a", "b"))
    assert word.value == "b"
    word.widget.value = "a"
    assert word.value == "a"


@pytest.mark.parametrize(
    ("guess", "actual", "words"),
    [
        (2.0, 2.1, "close"),
        (2.0, 10.0, "5 times too low"),
        (10.0, 2.0, "5 times too high"),
        (1.0, 2500.0, "2,500 times too low"),
        (0.0, 0.0, "right"),
        (0.0, 3.0, "3 apart"),
        ("openvino", "openvino", "right"),
        ("openvino", "compiled", "another one"),
    ],
)
def test_reveal_says_how_far_the_guess_was(shown, guess, actual, words):
    lesson.reveal(lesson.Guess(guess, "times"), actual)
    assert words in shown[0]
    assert str(actual).split(".")[0].replace("2500", "2,500") in shown[0]


def double(x):
    return 2 * x


def test_check_passes_a_right_function(capsys):
    lesson.check(double, ((3,), 6), ((0.5,), 1.001), hint="two of them")
    assert capsys.readouterr().out == "passed: double\n"


def stub(x):
    return None


def raising(x):
    raise RuntimeError("half written")


def wrong_in_the_second_case(x):
    return 6


@pytest.mark.parametrize("function", [stub, raising, wrong_in_the_second_case], ids=lambda one: one.__name__)
def test_check_says_not_yet_and_never_raises(function, capsys):
    lesson.check(function, ((3,), 6.0), ((4,), 8.0), hint="two of them")
    out = capsys.readouterr().out
    assert out.startswith(f"not yet: {function.__name__}(")
    assert "two of them" in out


def test_apply_goes_on_before_the_exercise_is_done(capsys):
    lesson.apply(double, 2.0, show="{:.1f} s".format)
    lesson.apply(stub, 2.0, show="{:.1f} s".format)
    lesson.apply(raising, 2.0)
    lesson.apply(stub, 2.0)
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "double gives 4.0 s"
    finish = "stub gives nothing yet: finish the exercise above"
    assert out[1:] == [finish, "raising gives nothing yet: RuntimeError: half written", finish]


def test_a_claim_is_kept_and_shown_with_its_figures(shown, monkeypatch, tmp_path):
    monkeypatch.setenv("ACCEL_STORE", str(tmp_path))
    made = Claim("C3", "The first call is slow", "holds", "It took 9 times the median.", "machine", "2026-12-01T10:00:00+00:00", "tiny-cnn")
    lesson.claim(made)
    assert Store().latest(Claim, model="tiny-cnn") == [made]
    assert "C3" in shown[0]
    assert "**holds**. It took 9 times" in shown[0]


def test_score_says_whether_the_baseline_is_reproduced(shown, monkeypatch):
    monkeypatch.setattr(lesson.models, "get", lambda name: SimpleNamespace(metric=SimpleNamespace(published=0.9033)))
    lesson.score(example_records.measurement())
    lesson.score(example_records.measurement(score=Score("accuracy", 0.89, 858)))
    lesson.score(example_records.measurement(score=None))
    assert "**reproduced**" in shown[0]
    assert "858" in shown[0]
    assert "**NOT reproduced**" in shown[1]
    assert "no task metric" in shown[2]


def test_exported_lists_the_sizes_that_ran(shown):
    export = {"opset": 20, "checked": [[1, 16], [7, 21]], "worst_error": 3.2e-6}
    lesson.exported([example_records.measurement(report={"export": export}), example_records.measurement()])
    assert "1x16, 7x21" in shown[0]
    assert "3e-06" in shown[0]
    lesson.exported([example_records.measurement()])
    assert "No engine" in shown[1]
