"""Figures and page of a sweep, drawn by the real libraries from real run directories."""

from __future__ import annotations

import json

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from foreshock.lab import curves, draw, page, sweep
from foreshock.lab.results import read_results


@pytest.fixture
def results(tmp_path, write_run):
    planned = sweep.plans("tiny", ["fixed", "constrained"], [0, 1, 2], 120, tmp_path)
    for plan in planned:
        write_run(plan)
    return read_results(planned)


def test_the_band_is_the_range_of_the_seeds_around_their_median(results):
    tails, _, _ = curves.figures(results)
    fixed = [result for result in results if result.arm == "fixed"]
    (band,) = (band for band in tails.rows[0][0].bands if band.name == "post-tool p95")
    values = [[b.sketches["policy/ref"].quantile(0.95, "post_tool").value for b in r.run.blocks] for r in fixed]
    assert band.middle.tolist() == np.median(values, axis=0).tolist()
    assert band.low.tolist() == np.min(values, axis=0).tolist()
    assert band.high.tolist() == np.max(values, axis=0).tolist()
    assert tails.rows[0][0].burn_in == 30


def test_the_share_above_x_crosses_five_per_cent_at_p95(results):
    _, shares, _ = curves.figures(results)
    late = shares.rows[1][1].bands[-1]
    crossing = late.x[np.flatnonzero(late.middle < 0.05)[0]]
    p95 = np.median([_late_p95(result) for result in results if result.arm == "constrained"])
    assert crossing == pytest.approx(p95, rel=0.06)


def _late_p95(result):
    from foreshock.lab.results import MEASURES

    return MEASURES["p95 post-tool"](result, "late")


def test_no_figure_holds_more_than_three_arms(tmp_path, write_run):
    planned = sweep.plans("tiny", ["fixed", "drift_aware", "constrained", "schema"], [0], 60, tmp_path)
    for plan in planned:
        write_run(plan, growth=1.0)
    drawn = curves.figures(read_results(planned))
    assert [figure.name for figure in drawn][:2] == ["figure-1", "figure-1-2"]
    assert max(len(figure.columns) for figure in drawn) == 3


def test_all_panels_of_a_row_share_an_axis_that_holds_every_band(results):
    _, _, aggregates = curves.figures(results)
    drawn = draw.plotly_figure(aggregates)
    kl = [panel.bands[0] for panel in aggregates.rows[-1]]
    ranges = [axis.range for axis in drawn.select_yaxes(row=len(aggregates.rows))]
    assert len(ranges) == 2
    assert all(low == 0 and top > max(band.high.max() for band in kl) for low, top in ranges)


def test_runs_too_short_for_parts_are_drawn_all_the_same(tmp_path, write_run):
    (plan,) = sweep.plans("tiny", ["fixed"], [0], 12, tmp_path)
    write_run(plan)
    for figure in curves.figures(read_results([plan])):
        draw.save(figure, tmp_path)
        draw.plotly_figure(figure)


def test_png_and_svg_are_drawn_the_same_each_time(results, tmp_path):
    figure = curves.figures(results)[0]
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        draw.save(figure, tmp_path / name)
    for kind in ("png", "svg"):
        assert (tmp_path / "a" / f"figure-1.{kind}").read_bytes() == (tmp_path / "b" / f"figure-1.{kind}").read_bytes()
    assert "exogenous curriculum" in (tmp_path / "a" / "figure-1.svg").read_text()


def test_the_page_stands_alone_and_the_tables_lie_beside_it(results, tmp_path):
    target = page.write(results, curves.figures(results), tmp_path)
    text = target.read_text()
    assert text.count('class="plot"') == 3
    assert "exogenous" in text
    assert "https://" not in text.split("<script>")[0]
    document = json.loads((tmp_path / "results.json").read_text())
    assert len(document["runs"]) == 6
    assert "## Every run" in (tmp_path / "tables.md").read_text()
