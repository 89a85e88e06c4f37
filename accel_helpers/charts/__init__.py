"""Records in, plotly figures, sentences and tables out. Only this package and ``report`` turn figures into text."""

from accel_helpers.charts.builds import attempts_table, shapes_table, simplifications, simplified_table
from accel_helpers.charts.chart import CONFIG, MIME, Chart, Table, as_html, as_text
from accel_helpers.charts.costs import peaks, reuse
from accel_helpers.charts.findings import accuracy, bit_widths, causes, layer_noise, mixed, trials
from accel_helpers.charts.graphs import graph_counts, graph_piece
from accel_helpers.charts.launches import cold_starts, formats, launch_times, lunches, recompilations
from accel_helpers.charts.layers import layer_bars
from accel_helpers.charts.outputs import culprit_table, differences_table, error_along
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
    "attempts_table",
    "batch_sweep",
    "bit_widths",
    "causes",
    "ceiling_share",
    "census",
    "cold_starts",
    "comparison",
    "culprit_table",
    "describe",
    "describe_verdict",
    "differences_table",
    "error_along",
    "formats",
    "graph_counts",
    "graph_piece",
    "labels",
    "latency",
    "launch_times",
    "layer_bars",
    "layer_noise",
    "lunches",
    "machine",
    "mixed",
    "operator_time",
    "peaks",
    "rate",
    "ratio",
    "recompilations",
    "reuse",
    "rounds_so_far",
    "seconds",
    "shapes_table",
    "simplifications",
    "simplified_table",
    "size",
    "size_and_memory",
    "table",
    "trade_off",
    "trade_off_so_far",
    "trials",
]
