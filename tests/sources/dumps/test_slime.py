from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import rollout_dumps as dumps
import torch

from foreshock.errors import MissingExtra, ReadError
from foreshock.sources import open_run
from foreshock.sources.dumps import slime
from foreshock.sources.dumps.collect import REPEATED


def test_every_pair_is_that_of_the_rollouts_and_the_second_rank_counts_nothing_twice(tmp_path: Path) -> None:
    steps = [dumps.rollouts(step) for step in range(12)]
    run = open_run(dumps.slime(tmp_path, steps))
    samples = [sample for samples in steps[:10] for sample in samples]
    for pair, names in (("policy/ref", ("old", "ref")), ("old/rollout", ("old", "rollout"))):
        assert np.array_equal(run.blocks[0].sketches[pair].counts, dumps.truth(samples, *names).counts)
    assert run.pair == "policy/ref"
    assert run.blocks[0].counters["rows"] == (8.0,) * 10
    assert run.skipped == {REPEATED: 12}
    assert run.series["reward"].values == pytest.approx([np.mean([s.reward for s in samples]) for samples in steps])


def test_a_rank_without_log_probabilities_first_hides_nothing_of_the_others(tmp_path: Path) -> None:
    folder = dumps.slime(tmp_path, [dumps.rollouts(0)]) / "train_data"
    content = torch.load(folder / "0_0.pt")
    content["rollout_data"]["log_probs"][0][0] = float("nan")
    torch.save(content, folder / "0_2.pt")
    (folder / "0_0.pt").unlink()
    run = open_run(tmp_path)
    assert run.pair == "policy/ref"
    assert run.blocks[0].counters["nonfinite/old"] == (1.0,)
    assert run.blocks[0].counters["rows"] == (8.0,)


def test_rewards_of_the_whole_rollout_are_taken_by_partition(tmp_path: Path) -> None:
    path = dumps.slime(tmp_path, [dumps.rollouts(0)], ranks=1) / "train_data" / "0_0.pt"
    content = torch.load(path)
    content["rollout_data"]["raw_reward"] = [0.0] * 100 + [5.0] * 8
    content["rollout_data"]["partition"] = list(range(100, 108))
    torch.save(content, path)
    assert open_run(path).series["reward"].values.tolist() == [5.0]


def test_parts_of_responses_are_left_out_and_counted(tmp_path: Path) -> None:
    path = dumps.slime(tmp_path, [dumps.rollouts(0)], ranks=1) / "train_data" / "0_0.pt"
    content = torch.load(path)
    content["rollout_data"]["log_probs"] = [values[::2] for values in content["rollout_data"]["log_probs"]]
    torch.save(content, path)
    run = open_run(path)
    assert run.skipped == {slime.PARTIAL: 8}
    assert run.pair is None


def test_bfloat16_is_read(tmp_path: Path) -> None:
    path = dumps.slime(tmp_path, [dumps.rollouts(0)], ranks=1) / "train_data" / "0_0.pt"
    content = torch.load(path)
    content["rollout_data"]["log_probs"] = [values.bfloat16() for values in content["rollout_data"]["log_probs"]]
    torch.save(content, path)
    assert open_run(path).blocks[0].sketches["policy/ref"].n("text_only") > 0


def test_a_row_without_a_column_is_not_taken_for_one_with_nan(tmp_path: Path) -> None:
    path = dumps.slime(tmp_path, [dumps.rollouts(0)], ranks=1) / "train_data" / "0_0.pt"
    content = torch.load(path)
    content["rollout_data"]["log_probs"][3] = content["rollout_data"]["log_probs"][3][:2]
    torch.save(content, path)
    run = open_run(path)
    assert run.skipped == {slime.PARTIAL: 1}
    assert run.blocks[0].counters["rows"] == (8.0,)
    assert run.blocks[0].total("nonfinite/old") == 0


def test_without_torch_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = dumps.slime(tmp_path, [dumps.rollouts(0)], ranks=1) / "train_data" / "0_0.pt"
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtra, match=r"pip install 'foreshock\[dumps\]'"):
        open_run(path)


class Custom:
    """What a foreign file may hold."""


def test_objects_are_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "0_0.pt"
    torch.save({"rollout_id": 0, "rollout_data": {"tokens": [Custom()]}}, path)
    with pytest.raises(ReadError, match=r"test_slime\.Custom"):
        open_run(path)


@pytest.mark.parametrize("data", [{}, {"tokens": 3, "loss_masks": []}, {"tokens": [["a"]], "loss_masks": [[1]]}])
def test_other_contents_are_refused(tmp_path: Path, data: object) -> None:
    path = tmp_path / "0_0.pt"
    torch.save({"rollout_id": 0, "rollout_data": data}, path)
    with pytest.raises(ReadError):
        open_run(path)
