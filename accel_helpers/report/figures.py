"""A plotly figure in a page: drawn, said in a sentence, and repeated as a table."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from html import escape
from typing import Any

from accel_helpers.charts import Chart, Table, as_html

_MOST_ROWS = 200


def in_script(values: Any) -> str:
    """JSON that cannot end the script element it stands in."""
    return json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")


def scrolling(table: str, name: str, tight: bool = True) -> str:
    """A table that scrolls sideways by itself where it is wider than the page, by keyboard as well; ``tight`` cells are one line each."""
    return f'<div class="scroll{" tight" if tight else ""}" tabindex="0" role="group" aria-label="{escape(name)}">{table}</div>'


def drawn(chart: Chart) -> str:
    """One of our own charts."""
    return from_json(json.loads(chart.figure.to_json()))


def from_json(figure: Mapping[str, Any]) -> str:
    """A figure as plotly's JSON: ``data`` and ``layout``. The sentence and the table come with our own charts (``layout.meta``)."""
    layout = dict(figure.get("layout", {}))
    sentence, table = spoken(figure)
    title = _text(layout.get("title")) or "Chart"
    content = in_script({"data": figure.get("data", []), "layout": layout | {"meta": None}})
    height = int(layout.get("height") or layout.get("template", {}).get("layout", {}).get("height") or 450)
    return (
        f'<figure><div class="scroll" tabindex="0" role="group" aria-label="{escape(f"Chart: {title}")}">'
        f'<div class="plot" role="img" aria-label="{escape(sentence)}" style="height:{height}px"></div>'
        f'<script type="application/json">{content}</script></div><figcaption>{escape(sentence)}</figcaption>'
        f"<details><summary>The same data as a table<span class=unseen>: {escape(title)}</span></summary>"
        f"{scrolling(as_html(table), f'Data of: {title}')}</details></figure>"
    )


def spoken(figure: Mapping[str, Any]) -> tuple[str, Table]:
    """The sentence and the table of a figure; for a figure that is not ours, its title and its traces' points."""
    layout = figure.get("layout", {})
    meta = layout.get("meta")
    if isinstance(meta, Mapping) and {"sentence", "table"} <= meta.keys():
        return str(meta["sentence"]), [[str(cell) for cell in row] for row in meta["table"]]
    rows = [row for number, trace in enumerate(figure.get("data", []), 1) for row in _points(trace, number)]
    cut = f" The table holds the first {_MOST_ROWS} of {len(rows)} points." if len(rows) > _MOST_ROWS else ""
    header = ["Series", _text(layout.get("xaxis", {}).get("title")) or "x", _text(layout.get("yaxis", {}).get("title")) or "y"]
    return f"{_text(layout.get('title')) or 'A chart without a title'}: {len(rows)} points.{cut}", [header, *rows[:_MOST_ROWS]]


def _points(trace: Mapping[str, Any], number: int) -> list[list[str]]:
    name = str(trace.get("name") or f"series {number}")
    ys = _values(trace.get("y"))
    xs = _values(trace.get("x")) or list(range(len(ys)))
    return [[name, str(x), str(y)] for x, y in zip(xs, ys, strict=False)]


def _values(array: Any) -> list[Any]:
    """A trace's values, from a list or from plotly's packed form."""
    if isinstance(array, Mapping) and "bdata" in array:
        import numpy as np

        packed: list[Any] = np.frombuffer(base64.b64decode(array["bdata"]), dtype=np.dtype(array["dtype"])).tolist()
        return packed
    return list(array) if isinstance(array, list | tuple) else []


def _text(title: Any) -> str:
    """The text of a plotly title, which is a mapping or a string."""
    return str(title.get("text") or "") if isinstance(title, Mapping) else str(title or "")
