from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from foreshock.run import Block, Run, merge_pair
from foreshock.sketch import LogRatioSketch
from foreshock.views import figures, multiples

PAIR = "policy/ref"


def trace(panel: figures.Panel, name: str):
    return next(trace for trace in panel.figure.data if trace.name == name)


def over_steps(run: Run) -> list[figures.Panel]:
    steps = figures.steps_of(run, warm_up=30, marks={70: "warning, step 70"})
    return [
        figures.tail_panel(run.blocks, PAIR, steps),
        figures.ess_panel(run.blocks, PAIR, steps),
        figures.alpha_panel(run.blocks, PAIR, steps),
        multiples.aggregates_panel(run, {}, steps),
    ]


def test_the_tail_is_what_the_sketches_hold(make_run) -> None:
    run = make_run(6)
    drawn = trace(over_steps(run)[0], "post_tool p99")
    expected = [block.sketches[PAIR].quantile(0.99, "post_tool").value for block in run.blocks]
    assert drawn.y == pytest.approx(expected, rel=1e-4)
    assert drawn.x == tuple(block.middle_step for block in run.blocks)


def test_every_figure_over_steps_has_the_same_range_warm_up_and_marks(make_run) -> None:
    panels = over_steps(make_run(12))
    assert len({tuple(panel.figure.layout.xaxis.range) for panel in panels}) == 1
    low, high = panels[0].figure.layout.xaxis.range
    assert low < 1
    assert high > 120
    for panel in panels:
        shapes = {shape.type: (shape.x0, shape.x1) for shape in panel.figure.layout.shapes}
        assert shapes["line"] == (70, 70)
        assert shapes["rect"][1] == 30.5


def test_a_slice_has_one_colour_in_every_figure(make_run) -> None:
    run = make_run(6)
    lines = [line for panel in over_steps(run)[:3] for line in panel.figure.data]
    lines += [line for panel in figures.tail_share_panels(run.blocks, PAIR)[1:] for line in panel.figure.data]
    assert {line.line.color for line in lines if "post_tool" in line.name or "late" in line.name} == {
        figures.COLOURS["post_tool"]
    }


def test_tail_shares_cross_one_percent_at_p99_on_the_same_axes(make_run) -> None:
    run = make_run(9)
    panels = figures.tail_share_panels(run.blocks, PAIR)
    assert panels[0].figure.layout.xaxis.range == panels[1].figure.layout.xaxis.range
    assert panels[0].figure.layout.yaxis.range == panels[1].figure.layout.yaxis.range
    late = merge_pair(run.blocks[-3:], PAIR)
    assert late is not None
    curve = trace(panels[1], "late 61–90")
    crossing = next(x for x, y in zip(curve.x, curve.y, strict=True) if y <= 0.01)
    assert crossing == pytest.approx(late.quantile(0.99, "post_tool").value, rel=1e-4)
    assert all(before >= after > 0 for before, after in pairwise(curve.y))
    assert curve.x[-1] == pytest.approx(late.ecdf("post_tool").values[-1], rel=1e-4)


def test_a_slice_without_tokens_is_said_and_not_drawn(make_run) -> None:
    run = make_run(4, filled=("text_only",))
    tail, ess, alpha, _ = over_steps(run)
    assert {line.name for line in tail.figure.data} == {"text_only p95", "text_only p99"}
    assert "post_tool" in tail.notes[0]
    assert "post_tool" in ess.notes[0]
    assert alpha.notes == ("No response token of this run follows a tool result: α is 0.",)
    assert "no token in slice post_tool" in figures.tail_share_panels(run.blocks, PAIR)[1].missing


def test_log_ratios_that_are_all_zero_are_drawn() -> None:
    sketch = LogRatioSketch()
    sketch.update(np.zeros(50), np.repeat([0, 1], 25))
    blocks = [Block(0, 1, 10, {PAIR: sketch})]
    steps = figures.Steps(1, 10)
    assert trace(figures.tail_panel(blocks, PAIR, steps), "post_tool p99").y == (0.0,)
    assert len(figures.tail_share_panels(blocks, PAIR)) == 2


def test_alpha_prefers_the_counters_that_see_every_row(make_run) -> None:
    block = make_run(1).blocks[0]
    counted = Block(0, 1, 2, block.sketches, counters={"response_tokens": (6.0, 4.0), "post_tool_tokens": (1.0, 3.0)})
    steps = figures.Steps(1, 2)
    assert figures.alpha_panel([counted], PAIR, steps).figure.data[0].y == (0.4,)
    assert figures.alpha_panel([block], PAIR, steps).figure.data[0].y == (0.5,)
    assert figures.alpha_panel([Block(0, 1, 2, {})], None, steps).missing


def test_at_most_eight_user_slices_are_drawn_and_the_rest_is_said() -> None:
    names = ("text_only", "post_tool", *[f"tool_{number}" for number in range(10)])
    sketch = LogRatioSketch(names)
    for number in range(2, 12):
        sketch.update(np.linspace(0, 1, 10 * number), np.full(10 * number, number))
    panel = figures.user_tail_panel([Block(0, 1, 10, {PAIR: sketch})], PAIR, figures.Steps(1, 10), names[2:])
    assert {line.name for line in panel.figure.data} == {f"tool_{number}" for number in range(2, 10)}
    assert "2 more are in the table" in panel.caption


def test_names_are_escaped_for_the_markup_of_plotly() -> None:
    sketch = LogRatioSketch(("text_only", "post_tool", "<a href='x'>"))
    sketch.update(np.linspace(0, 1, 20), np.full(20, 2))
    panel = figures.user_tail_panel([Block(0, 1, 10, {PAIR: sketch})], PAIR, figures.Steps(1, 10), ["<a href='x'>"])
    assert "<a" not in panel.figure.data[0].name


def test_effective_sample_size_is_called_a_supporting_signal(make_run) -> None:
    assert "A supporting signal only" in over_steps(make_run(3))[1].caption
