from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import rollout_dumps as dumps

from foreshock.errors import ReadError
from foreshock.sources import open_run


@pytest.mark.parametrize("version", ["torch", "both", "numpy"])
def test_every_pair_is_that_of_the_rollouts_in_all_versions_of_the_batch(tmp_path: Path, version: str) -> None:
    steps = [dumps.rollouts(step) for step in range(12)]
    run = open_run(dumps.skyrl(tmp_path, steps, version))
    assert [(block.first_step, block.last_step) for block in run.blocks] == [(1, 10), (11, 12)]
    samples = [sample for samples in steps[:10] for sample in samples]
    for pair, names in (("policy/ref", ("old", "ref")), ("old/rollout", ("old", "rollout"))):
        assert np.array_equal(run.blocks[0].sketches[pair].counts, dumps.truth(samples, *names).counts)
    assert run.blocks[1].total("observation_tokens") == sum(s.mask.count(0) for samples in steps[10:] for s in samples)
    assert run.series["reward"].values == pytest.approx([np.mean([s.reward for s in samples]) for samples in steps])
    assert run.series["frac_reward_zero_std"].values.tolist() == [
        np.mean([len({s.reward for s in samples[at : at + 4]}) == 1 for at in (0, 4)]) for samples in steps
    ]


def test_a_name_without_a_step_is_refused(tmp_path: Path) -> None:
    path = dumps.skyrl(tmp_path, [dumps.rollouts(0)]) / "global_step_1_training_input.pkl"
    with pytest.raises(ReadError, match="says no step in its name"):
        open_run(path.rename(tmp_path / "batch.pkl"))
