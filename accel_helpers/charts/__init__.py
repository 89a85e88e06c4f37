"""Records in, plotly figures, sentences and tables out. Only this package and ``report`` turn figures into text."""

from accel_helpers.charts.chart import CONFIG, MIME, Chart, Table, as_html, as_text
from accel_helpers.charts.shares import Ceiling, ceiling_share, operator_time
from accel_helpers.charts.summary import table
from accel_helpers.charts.timing import latency, rounds_so_far
from accel_helpers.charts.units import rate, ratio, seconds, size
from accel_helpers.charts.versus import batch_sweep, comparison
from accel_helpers.charts.words import describe, describe_verdict, labels, machine

__all__ = [
    "CONFIG",
    "MIME",
    "Ceiling",
    "Chart",
    "Table",
    "as_html",
    "as_text",
    "batch_sweep",
    "ceiling_share",
    "comparison",
    "describe",
    "describe_verdict",
    "labels",
    "latency",
    "machine",
    "operator_time",
    "rate",
    "ratio",
    "rounds_so_far",
    "seconds",
    "size",
    "table",
]
