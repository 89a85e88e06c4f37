"""What a notebook says to its reader: guess first, see the figure, judge the claim, try it yourself.

Everything here displays and computes nothing of its own. Live (someone watches) a guess is a widget; headless it is the default, so that
the same cells run under papermill.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from IPython.display import HTML, Markdown, display

from accel_helpers import models, panel
from accel_helpers.charts import as_html
from accel_helpers.records import Claim, Measurement
from accel_helpers.store import Store

CLOSE = 1.25
"""A guess within this factor of the figure is called close."""
REPRODUCED = 0.005
"""Largest distance of a baseline's task metric from the figure it must reproduce: rounding moves a few samples of hundreds."""


@dataclass(frozen=True)
class Guess:
    """A reader's guess: a number in ``unit``, or one of several words. ``widget`` holds what the reader chose, where there is one."""

    default: float | str
    unit: str = ""
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
    display(Markdown(f"**Predict.** {question}"))
    if not panel.live():
        display(Markdown(f"Nobody is watching, so the guess is {_said(default, unit)}."))
        return Guess(default, unit)
    import ipywidgets

    look = {"description": f"Your guess ({unit})" if unit else "Your guess", "style": {"description_width": "initial"}}
    widget = ipywidgets.Dropdown(options=list(choices), value=default, **look) if choices else ipywidgets.FloatText(value=default, **look)
    display(widget)
    return Guess(default, unit, widget)


def reveal(guess: Guess, actual: float | str) -> None:
    """Show the figure beside the guess, both in the guess's unit."""
    guessed = guess.value
    shown = f"You guessed {_said(guessed, guess.unit)}; measured: **{_said(actual, guess.unit)}**"
    display(Markdown(f"**Reveal.** {shown}: {_distance(guessed, actual)}."))


def _distance(guessed: Any, actual: Any) -> str:
    if isinstance(actual, str):
        return "right" if guessed == actual else "another one"
    if guessed <= 0 or actual <= 0:
        return "right" if guessed == actual else f"{abs(actual - guessed):.2g} apart"
    factor = max(actual / guessed, guessed / actual)
    if factor <= CLOSE:
        return "close"
    return f"the guess was {_number(factor)} times too {'low' if actual > guessed else 'high'}"


def _said(value: float | str, unit: str) -> str:
    return f"{value if isinstance(value, str) else _number(value)} {unit}".strip()


def _number(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def table(rows: Sequence[Sequence[str]], caption: str = "") -> None:
    """Display a table: a header, then rows of text."""
    display(HTML(as_html([list(row) for row in rows], caption)))


def claim(made: Claim) -> None:
    """Keep what this machine says of a claim, and show it with its figures."""
    Store().add(made)
    display(Markdown(f"**Claim {made.id}.** {made.statement}: **{made.verdict}**. {made.evidence}"))


def score(measurement: Measurement) -> None:
    """Show the task metric beside the figure that the model must reproduce, or say why there is none."""
    metric, found = models.get(measurement.model).metric, measurement.score
    if metric is None or found is None:
        display(Markdown(f"{measurement.model} on {measurement.plan.engine} has no task metric: only its outputs were compared."))
        return
    said = f"{found.name} {found.value:.4f} on {found.samples:,} labelled samples"
    if metric.published is not None:
        near = abs(found.value - metric.published) <= REPRODUCED
        said += f"; the FP32 figure is {metric.published:.4f}: **{'reproduced' if near else 'NOT reproduced'}**"
    display(Markdown(f"{said}."))


def exported(measurements: Sequence[Measurement]) -> None:
    """Show how the ONNX file behind each engine was checked: the sizes at which it ran, and its largest error against PyTorch."""
    rows = []
    for one in measurements:
        if report := one.report.get("export"):
            sizes = ", ".join("x".join(map(str, size)) for size in report["checked"])
            rows.append([one.plan.label, str(report["opset"]), sizes, f"{report['worst_error']:.1g}"])
    if rows:
        table([["Plan", "Opset", "Ran at batch x sequence", "Largest relative error"], *rows])
    else:
        display(Markdown("No engine of this comparison reads an exported file."))


def check(function: Callable[..., Any], *cases: tuple[tuple[Any, ...], Any], hint: str) -> None:
    """Say whether an exercise's function gives what each case expects: prints "passed", or "not yet" with the hint; never raises.

    Args:
        function: the reader's.
        cases: arguments and the expected answer; floats agree within 1 %, in a tuple too.
        hint: shown until it passes.
    """
    for arguments, expected in cases:
        try:
            answer = function(*arguments)
            right = _agree(answer, expected)
        except Exception as error:  # a reader's half-written function may raise or answer anything
            answer, right = error, False
        if not right:
            call = f"{function.__name__}({', '.join(map(repr, arguments))})"
            print(f"not yet: {call} gives {answer!r}. Hint: {hint}")  # noqa: T201 - plain text is readable in every front end
            return
    print(f"passed: {function.__name__}")  # noqa: T201


def _agree(answer: Any, expected: Any) -> bool:
    if isinstance(expected, tuple):
        return isinstance(answer, tuple) and len(answer) == len(expected) and all(map(_agree, answer, expected))
    return math.isclose(answer, expected, rel_tol=0.01) if isinstance(expected, float) else bool(answer == expected)


def apply(function: Callable[..., Any], *arguments: Any, show: Callable[[Any], str] = str) -> None:
    """Use a reader's function on figures of this machine and print what it gives; before it is finished, say so and go on.

    Args:
        function: an exercise's.
        arguments: what to call it with.
        show: how its answer is written.
    """
    try:
        answer = function(*arguments)
        text = "nothing yet: finish the exercise above" if answer is None else show(answer)
    except Exception as error:  # a half-written function may raise or answer anything
        text = f"nothing yet: {type(error).__name__}: {error}"
    print(f"{function.__name__} gives {text}")  # noqa: T201
