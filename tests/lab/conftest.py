"""Runs as a sweep leaves them: real run directories with sketches of random log-ratios whose tail is known."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from foreshock.lab.environment import REDIRECT_SHARE
from foreshock.lab.plan import RunPlan
from foreshock.run import Block, RunWriter, prepare_directory
from foreshock.sketch import LogRatioSketch

GROWTH = {"fixed": 1.06, "drift_aware": 1.0, "constrained": 1.0}
"""By what factor the post-tool scale grows a block, from the tenth block on."""


@pytest.fixture
def write_run() -> Callable[..., None]:
    """Write a finished run directory for a plan, in blocks of 6 steps."""

    def write(plan: RunPlan, *, status: str = "finished", growth: float | None = None) -> None:
        rng = np.random.default_rng(plan.seed)
        identity = {"watch": {"max_steps": plan.steps}}
        writer = RunWriter(prepare_directory(plan.run_dir), start_step=0, identity=identity, notices={})
        factor = GROWTH[plan.arm] if growth is None else growth
        for index in range(plan.steps // 6):
            sketch = LogRatioSketch()
            for slice_id, scale in enumerate((1.0, factor ** max(0, index - 9))):
                sketch.update(0.2 * scale * rng.standard_t(3, size=2000), np.full(2000, slice_id))
            writer.write_block(Block(index, 6 * index + 1, 6 * index + 6, {"policy/ref": sketch}))
            for step in range(6 * index + 1, 6 * index + 7):
                values = {"loss": rng.normal(0, 0.01), "reward": 0.8 + rng.normal(0, 0.03), REDIRECT_SHARE: step / 400}
                writer.write_metrics(step, values | {"entropy": 1.5 + rng.normal(0, 0.03), "kl": 0.03})
        writer.end(status)
        writer.close()

    return write


@pytest.fixture
def cache(tmp_path) -> Path:
    """A cache that holds a quickly trained reference in the place of the whole one, which takes most of a minute."""
    from foreshock.lab.reference import TinyReference, reference_folder

    folder = tmp_path / ".lab"
    folder.mkdir()
    small = reference_folder(TinyReference(steps=150, batch_size=32), tmp_path)
    return small.rename(folder / f"reference-{TinyReference().digest}").parent
