from __future__ import annotations

import math

from foreshock.detect.series_change import Change
from foreshock.rules.finding import Finding
from foreshock.run import Run
from foreshock.views import figures, multiples


def test_scalars_that_are_not_finite_are_gaps_and_counted_in_the_title() -> None:
    run = Run()
    for step, loss in enumerate([0.1, math.nan, math.inf, 0.2], start=1):
        run.append_scalars(step, {"loss": loss})
    changes = {"loss": Change(False, None, math.nan, math.nan, "only 4 values")}
    panel = multiples.aggregates_panel(run, changes, figures.steps_of(run))
    assert panel.figure.data[0].y == (0.1, None, None, 0.2)
    assert panel.figure.layout.annotations[0].text == "<b>loss</b> — cannot be judged; 2 of 4 not finite"
    assert panel.notes == ("Not logged: reward, entropy, kl.", "Not judged: loss (only 4 values).")


def test_no_scalars_is_a_sentence() -> None:
    assert "was logged" in multiples.aggregates_panel(Run(), {}, figures.Steps(0, 0)).missing


def test_the_series_of_findings_are_drawn_once_and_aggregates_are_left_to_their_own_figure() -> None:
    run = Run()
    for step in range(1, 4):
        run.append_scalars(step, {"reward": 1.0, "reward_std": 0.0, **{f"key{n}": 1.0 for n in range(9)}})
    row = {"segment": "early", "steps": "1–3", "reward": 1.0, "reward_std": 0.0}
    findings = [Finding("a", "warning", "A.", (1, 3), evidence=(row,)) for _ in range(2)]
    panel = multiples.findings_panel(run, findings, figures.steps_of(run))
    assert panel is not None
    assert [trace.name for trace in panel.figure.data] == ["reward_std"]
    many = [Finding("a", "warning", "A.", (1, 3), evidence=(dict.fromkeys(run.series, 1.0),))]
    panel = multiples.findings_panel(run, many, figures.steps_of(run))
    assert panel is not None
    assert len(panel.figure.data) == 8
    assert panel.notes == ("2 more are not drawn.",)
    assert multiples.findings_panel(run, [], figures.steps_of(run)) is None
