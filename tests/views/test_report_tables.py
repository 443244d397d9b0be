from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import numpy as np

from foreshock.run import Block, Run, merge_pair
from foreshock.sketch import LogRatioSketch
from foreshock.views import tables
from foreshock.views.words import shown

PAIR = "policy/ref"


def test_the_slice_table_shows_the_merged_sketch_of_each_third(make_run) -> None:
    run = make_run(9)
    table = tables.slice_table(run.blocks, PAIR, ("text_only", "post_tool"))
    assert [(row.group, row.part, row.steps) for row in table.rows] == [
        ("text_only", "early", "1–30"), ("text_only", "middle", "31–60"), ("text_only", "late", "61–90"),
        ("post_tool", "early", "1–30"), ("post_tool", "middle", "31–60"), ("post_tool", "late", "61–90"),
    ]  # fmt: skip
    late = merge_pair(run.blocks[-3:], PAIR)
    assert late is not None
    cells = dict(zip(table.columns, table.rows[-1].cells, strict=True))
    assert cells["tokens"].text == "4,500"
    assert cells["p99 (nats)"].text == shown(late.quantile(0.99, "post_tool").value)
    assert cells["ESS/n"].text == shown(late.ess_share("post_tool", cap=3.0).value)


def test_fewer_than_three_blocks_are_one_part(make_run) -> None:
    rows = tables.slice_table(make_run(2).blocks, PAIR, ("text_only",)).rows
    assert [(row.part, row.steps) for row in rows] == [("whole run", "1–20")]


def test_an_empty_slice_has_its_reason_as_one_note(make_run) -> None:
    table = tables.slice_table(make_run(3, filled=("text_only",)).blocks, PAIR, ("text_only", "post_tool"))
    assert table.notes == ("no token in slice post_tool",)
    assert {cell.text for cell in table.rows[-1].cells[1:]} == {"–"}


def test_means_leave_out_what_is_not_finite_and_say_so() -> None:
    run = Run()
    for step, loss in enumerate([1.0, math.nan, 3.0, math.nan, math.inf, math.nan], start=1):
        run.append_scalars(step, {"loss": loss})
    table = tables.aggregate_table(run, run.blocks)
    assert [(row.part, row.steps, row.cells[0].text) for row in table.rows] == [
        ("early", "1–2", "1.00"), ("middle", "3–4", "3.00"), ("late", "5–6", "–"),
    ]  # fmt: skip
    assert len(table.notes) == 3
    assert "never finite" in table.rows[-1].cells[0].note


def test_a_run_without_aggregates_has_an_empty_table() -> None:
    assert tables.aggregate_table(Run(), []).columns == ()


def test_workers_without_a_token_of_a_pair_are_counted(make_run, make_diagnosis) -> None:
    run = make_run(2)
    run.blocks[1] = replace(run.blocks[1], workers=4, counters={f"workers/{PAIR}": (0.0, 3.0)})
    counted = tables.skipped_counts(run, make_diagnosis())
    assert counted[f"times that a worker had no token of {PAIR} in a block"] == 1


def test_everything_that_was_left_out_is_counted(make_diagnosis) -> None:
    sketch = LogRatioSketch()
    sketch.update(np.array([0.1, np.nan, np.inf, -np.inf, np.nan]), np.array([0, 0, 0, 1, 1]))
    run = Run(blocks=[Block(0, 1, 10, {PAIR: sketch}, counters={"errors": (0.0, 2.0)})], skipped=Counter())
    run.append_scalars(3, {"reward": math.nan})
    assert tables.skipped_counts(run, make_diagnosis(skipped={"torn or damaged lines in blocks.jsonl": 2})) == {
        "torn or damaged lines in blocks.jsonl": 2,
        "NaN log-ratios of policy/ref in text_only": 1,
        "+∞ log-ratios of policy/ref in text_only": 1,
        "NaN log-ratios of policy/ref in post_tool": 1,
        "−∞ log-ratios of policy/ref in post_tool": 1,
        "logged values of reward that are NaN or infinite": 1,
        "errors inside the monitor": 2,
    }
