"""What a notebook says to its reader: guess first, see the figure, judge the claim, try it yourself.

Everything here prints or displays and computes nothing that the road does not offer. Live (someone watches) a guess is a widget; headless it
is the default, so that the same cells run under papermill.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from IPython.display import Markdown, display

from accel_helpers import environment, panel
from accel_helpers.charts import Chart
from accel_helpers.intervals import Estimate
from accel_helpers.records import Claim, Finding, Measurement, Verdict
from accel_helpers.store import Store

PLOTLY = "application/vnd.plotly.v1+json"
CLOSE = 1.25
"""A guess within this factor of the figure is called close."""


@dataclass(frozen=True)
class Guess:
    """A reader's guess: a number in ``unit``, or one of ``choices``. ``widget`` holds what the reader typed, where there is one."""

    question: str
    default: float | str
    unit: str = ""
    choices: tuple[str, ...] = ()
    widget: Any = None

    @property
    def value(self) -> Any:
        """What the reader guesses now."""
        return self.default if self.widget is None else self.widget.value


def predict(question: str, default: float | str, unit: str = "", choices: Sequence[str] = ()) -> Guess:
    """Ask for a guess before the figure is known.

    Args:
        question: what the reader guesses.
        default: the guess of a reader who says nothing, and of every headless run.
        unit: of a number, for people: "times", "ms", "%".
        choices: given, the guess is one of them.
    """
    if not panel.live():
        display(Markdown(f"**Predict.** {question} (Guess taken: {_said(default, unit)})"))
        return Guess(question, default, unit, tuple(choices))
    import ipywidgets

    style, layout = {"description_width": "initial"}, {"width": "max-content"}
    if choices:
        widget = ipywidgets.Dropdown(options=list(choices), value=default, description="Your guess", style=style, layout=layout)
    else:
        widget = ipywidgets.FloatText(value=default, description=f"Your guess ({unit})" if unit else "Your guess", style=style, layout=layout)
    display(Markdown(f"**Predict.** {question}"), widget)
    return Guess(question, default, unit, tuple(choices), widget)


def reveal(guess: Guess, actual: float | str) -> None:
    """Show the figure beside the guess, both in the guess's unit."""
    guessed = guess.value
    if isinstance(actual, str):
        verdict = "right" if guessed == actual else "not so"
    elif guessed <= 0 or actual <= 0:
        verdict = "right" if guessed == actual else f"{abs(actual - guessed):.3g} apart"
    elif max(actual / guessed, guessed / actual) <= CLOSE:
        verdict = "close"
    else:
        verdict = f"{actual / guessed:.2g} times too low" if actual > guessed else f"{guessed / actual:.2g} times too high"
    display(Markdown(f"**Reveal.** You guessed {_said(guessed, guess.unit)}; measured: **{_said(actual, guess.unit)}**. {verdict.capitalize()}."))


def _said(value: float | str, unit: str) -> str:
    text = value if isinstance(value, str) else f"{value:,.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    return f"{text} {unit}".strip()


def show(chart: Chart) -> None:
    """Display a chart: the figure in plotly's own format (kilobytes, where a live figure would store megabytes), its sentence, its table."""
    figure = {PLOTLY: json.loads(chart.figure.to_json()), "text/plain": chart.sentence}
    display(figure, raw=True)
    display(Markdown(chart.sentence))


def judge(estimate: Estimate, *, at_least: float) -> Finding:
    """Whether a quantity reaches a bound, in the words of a claim: the whole interval has to lie on one side."""
    if estimate.low >= at_least:
        return "holds"
    return "does not hold here" if estimate.high < at_least else "too noisy to say"


def claim(name: str, statement: str, verdict: Finding, evidence: str, records: Sequence[Measurement | Verdict] = ()) -> Claim:
    """Record what this machine says of a claim, and show it with its figures.

    Args:
        name: the claim's id, such as "C3".
        statement: the claim in a sentence.
        verdict: what the figures say; ``too noisy to say`` takes its place where a record behind it is INVALID.
        evidence: the figures in a sentence.
        records: what it rests on.
    """
    invalid = [one for one in records if one.status == "INVALID"]
    if invalid:
        verdict, evidence = "too noisy to say", f"{evidence} A measurement behind this is INVALID."
    made = Claim(
        id=name,
        statement=statement,
        verdict=verdict,
        evidence=evidence,
        hardware=environment.describe().hardware,
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        model=next((one.model for one in records if isinstance(one, Measurement)), ""),
        records=tuple(one.digest for one in records),
    )
    Store().add(made)
    display(Markdown(f"**Claim {name}.** {statement} — **{verdict}**. {evidence}"))
    return made


def check(function: Callable[..., Any], *cases: tuple[tuple[Any, ...], Any], hint: str) -> bool:
    """Whether an exercise's function gives what each case expects. Prints "passed" or "not yet" with the hint; never raises.

    Args:
        function: the reader's.
        cases: arguments and the expected answer; numbers agree within 1 %.
        hint: shown until it passes.
    """
    for arguments, expected in cases:
        try:
            answer = function(*arguments)
        except Exception as error:  # a reader's half-written function may raise anything
            answer = f"{type(error).__name__}: {error}"
        if not _agrees(answer, expected):
            call = f"{function.__name__}({', '.join(map(repr, arguments))})"
            print(f"not yet: {call} gives {answer!r}. Hint: {hint}")  # noqa: T201 - plain text, readable in every front end
            return False
    print(f"passed: {function.__name__}")  # noqa: T201
    return True


def _agrees(answer: Any, expected: Any) -> bool:
    if isinstance(expected, float):
        return isinstance(answer, int | float) and math.isclose(answer, expected, rel_tol=0.01)
    return bool(answer == expected)
