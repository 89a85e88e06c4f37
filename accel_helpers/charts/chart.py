"""A chart, the sentence that says what it shows, and the table that holds the same data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

MIME = "application/vnd.plotly.v1+json"

INK, QUIET, GRID = "#222222", "#6B6B6B", "#E3E3E3"
PALETTE = ("#0072B2", "#D55E00", "#00795C", "#AA3377", "#222222", "#8A6A00", "#5B4BB5", "#6B6B6B")
"""Okabe and Ito's blue and vermillion and darker neighbours: told apart under colour blindness, each at least 3:1 against white.

Series differ in their marker and dash as well, so that no chart rests on colour alone.
"""
MARKERS = ("circle", "diamond", "square", "triangle-up", "x", "cross", "star", "hexagon")
DASHES = ("solid", "dash", "dot", "dashdot")
_HATCHES = ("", "/", "x", ".", "\\", "-", "|", "+")

CONFIG = {"responsive": True, "displaylogo": False, "modeBarButtonsToRemove": ["sendChartToCloud"]}
"""How plotly shows a figure: without the button that would upload the reader's figures."""
_WIDE = 20.0
"""Positive values that spread over more than this factor get a logarithmic axis."""

Table = list[list[str]]
"""A header and rows of text."""


@dataclass(frozen=True)
class Chart:
    """One chart.

    ``figure`` is a plotly Figure that also carries ``sentence`` and ``table`` (``layout.meta``), so that they survive in an executed
    notebook.
    """

    figure: Any
    sentence: str
    table: Table

    def bundles(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """What a notebook displays, by mime type: the figure, then the sentence with the table."""
        # plotly's own bundle would put five megabytes of script into the notebook; the mime type alone is drawn by JupyterLab
        figure = {MIME: {**self.figure.to_plotly_json(), "config": CONFIG}, "text/plain": self.sentence}
        text = f"<p>{escape(self.sentence)}</p><details><summary>The same data as a table</summary>{as_html(self.table)}</details>"
        return figure, {"text/html": text, "text/plain": self.sentence}

    def _ipython_display_(self) -> None:
        from IPython.display import display

        for bundle in self.bundles():
            display(bundle, raw=True)


def chart(traces: Sequence[Any], layout: dict[str, Any], sentence: str, table: Table) -> Chart:
    """A chart in this project's one template."""
    import plotly.graph_objects as go

    figure = go.Figure(data=list(traces), layout={"template": template(), **layout, "meta": {"sentence": sentence, "table": table}})
    return Chart(figure, sentence, table)


def template() -> dict[str, Any]:
    """The look of every chart: white ground, dark text, light grid, no frame."""
    axis: dict[str, Any] = {
        "gridcolor": GRID,
        "linecolor": QUIET,
        "ticks": "outside",
        "tickcolor": QUIET,
        "zeroline": False,
        "automargin": True,
    }
    axis["title"] = {"font": {"size": 13}}
    return {
        "layout": {
            "colorway": list(PALETTE),
            "font": {"family": "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif", "size": 13, "color": INK},
            "title": {"x": 0, "xref": "container", "pad": {"l": 12}, "font": {"size": 15}},
            "paper_bgcolor": "#FFFFFF",
            "plot_bgcolor": "#FFFFFF",
            "margin": {"l": 64, "r": 24, "t": 48, "b": 56},
            "height": 380,
            "hovermode": "closest",
            "legend": {"orientation": "h", "yref": "container", "yanchor": "bottom", "y": 0, "x": 0},
            "xaxis": axis,
            "yaxis": axis,
        }
    }


def shown(values: Sequence[float], factor: float) -> list[float]:
    """Values in units of ``factor``, cut to five digits: what a screen can show, in a tenth of the file."""
    return [float(f"{value / factor:.5g}") for value in values]


def bar_look(index: int) -> dict[str, Any]:
    """A colour and a hatching for bars of one kind."""
    hatching = {"shape": _HATCHES[index % len(_HATCHES)], "fgcolor": "#FFFFFF", "fgopacity": 0.45, "size": 7, "fillmode": "overlay"}
    return {"color": PALETTE[index % len(PALETTE)], "line": {"color": "#FFFFFF", "width": 1}, "pattern": hatching}


def axis_type(values: Sequence[float]) -> str:
    """Logarithmic where positive values spread too wide to be read on one linear axis."""
    return "log" if min(values) > 0 and max(values) / min(values) > _WIDE else "linear"


def as_html(table: Table, caption: str = "") -> str:
    """A table as HTML: the first row heads the columns, the first cell of each further row heads that row."""
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in table[0])
    rows = "".join(
        f'<tr><th scope="row">{escape(row[0])}</th>{"".join(f"<td>{escape(cell)}</td>" for cell in row[1:])}</tr>' for row in table[1:]
    )
    named = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f"<table>{named}<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def as_text(table: Table, width: int | None = None) -> str:
    """A table for the terminal, ``width`` columns wide (default: the terminal's), or wider where words would have to be broken."""
    import io
    import shutil

    from rich import box
    from rich.console import Console
    from rich.table import Table as Grid
    from rich.text import Text

    widths = _widths(table, width or shutil.get_terminal_size((120, 24)).columns)
    grid = Grid(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for name, columns in zip(table[0], widths, strict=True):
        grid.add_column(Text(name), width=columns)
    for row in table[1:]:
        grid.add_row(*(Text(cell) for cell in row))
    out = io.StringIO()
    Console(file=out, width=sum(widths) + 2 * len(widths), color_system=None, legacy_windows=False).print(grid)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines() if line.strip()) + "\n"


def _widths(table: Table, width: int) -> list[int]:
    """Columns as wide as their longest word, and the room that is left for those that take the most lines."""
    columns = list(zip(*table, strict=True))
    widths = [max((len(word) for cell in cells for word in cell.split()), default=1) for cells in columns]
    wished = [max(map(len, cells)) for cells in columns]
    for _ in range(max(0, width - sum(widths) - 2 * len(widths))):
        lines = [wish / have for wish, have in zip(wished, widths, strict=True)]
        if max(lines) <= 1:
            break
        widths[lines.index(max(lines))] += 1
    return widths
