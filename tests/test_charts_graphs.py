"""Pictures of graphs before and after fusion."""

import json

import pytest

from accel_helpers import charts
from accel_helpers.charts.graphs import _stretch
from accel_helpers.charts.layered import layered
from accel_helpers.compilation.graphs.fusion import Fusion
from accel_helpers.compilation.graphs.graph import Graph, Node, Stage
from accel_helpers.errors import ParameterError


def made():
    """Two blocks of MatMul, Add, Relu with a shortcut around each, and the layers that a compiler made of them."""
    before, after, groups, last, made_last = [], [], {}, (), ()
    for number in range(2):
        m, a, r, s = (f"{kind}{number}" for kind in ("product", "bias", "relu", "sum"))
        before += [
            Node(m, "MatMul", last),
            Node(f"view{number}", "Reshape", (m,)),
            Node(a, "Add", (f"view{number}",)),
            Node(r, "Relu", (a,)),
        ]
        before += [Node(s, "Add", (r, *last))]
        after += [Node(f"gemm{number}", "FusedGemm", made_last), Node(f"add{number}", "Add", (f"gemm{number}", *made_last))]
        groups |= {f"gemm{number}": (m, f"view{number}", a, r), f"add{number}": (s,)}
        last, made_last = (s,), (f"add{number}",)
    stages = (
        Stage("exported", "ONNX", Graph(tuple(before))),
        Stage("onnx_runtime", "ALL", Graph(tuple(after)), "exported, ONNX", groups, 0.25),
        Stage("tensorrt", "engine", None, reason="not yet run on a GPU"),
    )
    return Fusion("example", stages)


def data(chart):
    return json.loads(chart.figure.to_json())


def test_the_counts_tell_what_computes_from_what_moves():
    chart = charts.graph_counts(made())
    compute, move = data(chart)["data"]
    assert (compute["y"], compute["x"], move["x"]) == (["exported, ONNX", "onnx_runtime, ALL"], [8, 4], [2, 0])
    assert "onnx_runtime makes 4 of 8 (exported, ONNX), 2 of them the work of several" in chart.sentence
    assert "tensorrt, engine: not yet run on a GPU" in chart.sentence
    assert [row[:5] for row in chart.table[1:]] == [
        ["exported, ONNX", "10", "8", "", ""],
        ["onnx_runtime, ALL", "4", "4", "2", "250 ms"],
        ["tensorrt, engine", "", "", "", ""],
    ]


def boxes(chart, axis):
    return [shape for shape in data(chart)["layout"]["shapes"] if shape["xref"] == axis]


def test_nodes_that_became_one_layer_bear_its_number_and_colour():
    chart = charts.graph_piece(made())
    left, right = data(chart)["data"][1], data(chart)["data"][3]
    first, second = ([f"<b>{number}</b> {operator}" for operator in ("MatMul", "Add", "Relu")] for number in (1, 2))
    assert left["text"] == [*first, "Add", *second]  # the last addition is no part of a group
    assert right["text"] == ["<b>1</b> FusedGemm", "Add", "<b>2</b> FusedGemm"]
    colours = [box["line"]["color"] for box in boxes(chart, "x")]
    assert colours[:3] == [boxes(chart, "x2")[0]["line"]["color"]] * 3
    assert colours[4:7] == [boxes(chart, "x2")[2]["line"]["color"]] * 3
    assert len(set(colours)) == 3
    assert "7 computing nodes become 3 in onnx_runtime, ALL: 2 times FusedGemm does the work of MatMul + Add + Relu" in chart.sentence
    assert chart.table[1] == ["1", "FusedGemm", "MatMul, Add, Relu", "product0, bias0, relu0"]


def test_a_piece_tears_no_group_and_shows_what_feeds_it():
    chart = charts.graph_piece(made(), most=4)
    assert data(chart)["data"][1]["text"] == ["<b>1</b> MatMul", "<b>1</b> Add", "<b>1</b> Relu"]
    row = Graph(tuple(Node(f"n{number}", "Relu", (f"n{number - 1}",) if number else ()) for number in range(8)))
    torn = [{"n0", "n2", "n3"}, {"n1", "n7"}, {"n4", "n5"}]
    assert _stretch(row, torn, 4) == {"n4", "n5"}
    assert _stretch(row, torn[:1], 4) == {"n0", "n1", "n2", "n3"}
    late = made()
    stage = late.stages[1]
    only = {layer: names for layer, names in stage.groups.items() if layer == "gemm1"}
    chart = charts.graph_piece(Fusion("example", (late.stages[0], Stage("onnx_runtime", "ALL", stage.graph, stage.source, only))), most=3)
    assert data(chart)["data"][1]["text"] == ["<i>Add</i>", "<b>1</b> MatMul", "<b>1</b> Add", "<b>1</b> Relu"]
    assert [box["line"]["dash"] for box in boxes(chart, "x")] == ["dot", "solid", "solid", "solid"]


def test_what_has_no_picture_is_refused():
    with pytest.raises(ParameterError, match="not yet run on a GPU"):
        charts.graph_piece(made(), "tensorrt, engine")
    with pytest.raises(ParameterError, match="no graph that was made"):
        charts.graph_piece(made(), "exported, ONNX")
    with pytest.raises(ParameterError, match="0 computing nodes"):
        charts.graph_piece(made(), most=0)


def test_graph_charts_have_units_and_carry_their_words():
    for chart in (charts.graph_counts(made()), charts.graph_piece(made())):
        layout = data(chart)["layout"]
        titles = [axis["title"]["text"] for name, axis in layout.items() if "axis" in name and "title" in axis]
        assert titles
        assert all("(" in title for title in titles)
        assert layout["meta"] == {"sentence": chart.sentence, "table": chart.table}
        assert "n = " in chart.sentence
        assert len({len(row) for row in chart.table}) == 1


def test_the_layout_runs_downwards_and_no_box_covers_another():
    inputs = {"a": [], "b": ["a"], "c": ["a"], "d": ["b"], "e": ["c", "d"], "late": [], "f": ["e", "a", "late"]}
    found = layered(inputs)
    for name, sources in inputs.items():
        assert all(found.places[source][1] < found.places[name][1] for source in sources)
    places = list(found.places.values())
    assert all(abs(x - u) >= 1 - 1e-9 for i, (x, y) in enumerate(places) for u, v in places[:i] if y == v)
    assert found.places["late"][1] == found.places["f"][1] - 1  # beside what it feeds
    long = next(path for path in found.paths if path[0] == found.places["a"] and path[-1] == found.places["f"])
    assert [y for _, y in long] == [0, 1, 2, 3, 4]
    assert all((x, y) not in places for x, y in long[1:-1])


def test_the_layout_crosses_no_edges_that_need_not_cross():
    inputs = {"a": [], "b": [], "c": [], "x": ["c"], "y": ["b"], "z": ["a"]}
    places = layered(inputs).places
    assert sorted("abc", key=lambda name: places[name][0]) == [inputs[name][0] for name in sorted("xyz", key=lambda name: places[name][0])]
