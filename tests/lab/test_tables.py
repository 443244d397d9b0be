from __future__ import annotations

import pytest

from foreshock.lab import sweep, tables
from foreshock.lab.results import read_results


@pytest.fixture
def results(tmp_path, write_run):
    planned = sweep.plans("tiny", ["fixed", "drift_aware", "constrained"], [0, 1], 210, tmp_path)
    for plan in planned:
        write_run(plan, growth=1.0 if plan.name == "fixed-1" else None)
    return read_results(planned)


def test_every_check_names_the_seeds_that_show_it_and_those_that_do_not(results):
    checks = {row["what it must show"]: row for row in tables.check_rows(results)}
    alarm, silence = checks["fixed: alarm"], checks["constrained: no alarm"]
    assert (alarm["seeds that show it"], alarm["seeds that do not"]) == ("0", "1")
    assert silence["seeds that show it"] == "0, 1"
    (share,) = (row for text, row in checks.items() if text.startswith("drift_aware: late post-tool p95"))
    assert (share["seeds that show it"], share["seeds that do not"]) == ("0", "1")


def test_arms_that_did_not_run_are_not_judged(results):
    only_fixed = [result for result in results if result.arm == "fixed"]
    assert all(row["what it must show"].startswith("fixed") for row in tables.check_rows(only_fixed))


def test_every_run_has_a_row_and_every_arm_each_measure(results):
    rows = tables.run_rows(results)
    assert [(row["arm"], row["seed"]) for row in rows[:2]] == [("fixed", 0), ("drift_aware", 0)]
    assert rows[0]["alarm"] != "–"
    assert rows[0]["lead (steps)"] == f"over {210 - int(rows[0]['alarm'])}"
    assert (rows[1]["alarm"], rows[1]["lead (steps)"]) == ("–", "–")
    assert float(rows[0]["p95 post-tool, late/early"]) > 2
    parts = {(row["arm"], row["measure"]): row for row in tables.part_rows(results)}
    assert len(parts) == 3 * 13
    assert "[" in parts["fixed", "p99 post-tool"]["late"]


def test_markdown_has_one_line_a_row(results):
    rows = tables.run_rows(results)
    lines = tables.markdown(rows).splitlines()
    assert len(lines) == 2 + len(rows)
    assert len({line.count("|") for line in lines}) == 1
