"""Records in, plotly figures, sentences and tables out. Only this package and ``report`` turn figures into text."""

from accel_helpers.charts.chart import CONFIG, MIME, Chart, Table, as_html, as_text
from accel_helpers.charts.findings import accuracy, bit_widths, causes, layer_noise, mixed, trials
from accel_helpers.charts.layers import layer_bars
from accel_helpers.charts.quantization import census, size_and_memory
from accel_helpers.charts.shares import Ceiling, ceiling_share, operator_time
from accel_helpers.charts.summary import table
from accel_helpers.charts.timing import latency, rounds_so_far
from accel_helpers.charts.trade_off import trade_off, trade_off_so_far
from accel_helpers.charts.units import rate, ratio, seconds, size
from accel_helpers.charts.versus import batch_sweep, comparison
from accel_helpers.charts.words import describe, describe_verdict, labels, machine

__all__ = [
    "CONFIG",
    "MIME",
    "Ceiling",
    "Chart",
    "Table",
    "accuracy",
    "as_html",
    "as_text",
    "batch_sweep",
    "bit_widths",
    "causes",
    "ceiling_share",
    "census",
    "comparison",
    "describe",
    "describe_verdict",
    "labels",
    "latency",
    "layer_bars",
    "layer_noise",
    "machine",
    "mixed",
    "operator_time",
    "rate",
    "ratio",
    "rounds_so_far",
    "seconds",
    "size",
    "size_and_memory",
    "table",
    "trade_off",
    "trade_off_so_far",
    "trials",
]
