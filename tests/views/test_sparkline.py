import numpy as np

from foreshock.rules.finding import Finding
from foreshock.run import Block, Run
from foreshock.sketch import LogRatioSketch
from foreshock.views.sparkline import BARS, WIDTH, draw, sparklines


def finding(**fields):
    return Finding(**{"rule": "r", "severity": "warning", "summary": "", "steps": (1, 2), **fields})


def test_bars_rise_with_the_values_and_a_gap_stays_a_gap():
    assert draw(np.array([0.0, np.nan, 1.0]), 0.0, 1.0) == "▁ █"
    assert draw(np.linspace(0, 7, 8), 0.0, 7.0) == BARS


def test_the_series_of_the_evidence_are_drawn_with_their_ends():
    run = Run()
    for step in range(200):
        run.append_scalars(step, {"kl": step / 100, "loss": np.nan if step < 100 else -1.0, "other": 1.0})
    kl, loss = sparklines(finding(evidence=({"segment": "early", "kl": 0.1, "loss": 0.2},)), run)
    assert (kl.label, loss.label) == ("kl", "loss")
    assert len(kl.picture) == WIDTH
    assert list(kl.picture) == sorted(kl.picture)
    assert kl.first < 0.05 < 1.9 < kl.last
    assert set(loss.picture.strip()) == {"▁"}  # a constant −1 stands at the lowest bar, below 0
    assert loss.picture.startswith(" " * (WIDTH // 2 - 1))


def test_the_tails_of_both_slices_share_one_scale():
    run, rng = Run(), np.random.default_rng(0)
    for index in range(20):
        sketch = LogRatioSketch()
        for slice_id, scale in enumerate((0.2, 0.2 * 1.1**index)):
            sketch.update((scale * rng.standard_t(4, 2000)).astype(np.float32), np.full(2000, slice_id))
        run.blocks.append(Block(index, 10 * index + 1, 10 * index + 10, {"policy/ref": sketch}))
    text, post = sparklines(finding(slice="post_tool"), run)
    assert post.picture[-1] == BARS[-1]
    assert post.last > 4 * text.last
    assert set(text.picture) <= set(BARS[:3])


def test_nothing_to_draw():
    assert sparklines(finding(slice="post_tool"), Run()) == []
    assert sparklines(finding(evidence=({"a": 1},)), Run()) == []
