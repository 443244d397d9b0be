"""The promise of one SUM all-reduce, kept by real gloo workers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
import torch.multiprocessing as mp  # noqa: E402

from foreshock.sketch import LogRatioSketch  # noqa: E402
from foreshock.sketch.device import DeviceSketch, unpack  # noqa: E402

SLICES = ("text_only", "post_tool")
PAIRS = ("policy/ref", "policy/old")
STEPS = 3
ARRAYS = ("counts", "fractions", "sequences", "tallies", "extremes", "masked", "outside")


def shard(rank: int, step: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    g = np.random.default_rng([rank, step])
    shape = (int(g.integers(0, 9)), int(g.integers(1, 50)))
    values = g.standard_t(2, shape).astype(np.float32)
    values[g.random(shape) < 0.05] = np.nan
    return values, g.integers(0, 2, shape), g.random(shape) < 0.8


def work(rank: int, world_size: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=world_size)
    sketch = DeviceSketch(PAIRS, SLICES, "cpu", rank=rank, world_size=world_size)
    for step in range(STEPS):
        sketch.update(PAIRS[step % 2], *map(torch.from_numpy, shard(rank, step)))
    packed = sketch.pack()
    dist.all_reduce(packed)
    merged = unpack(packed.numpy(), PAIRS, SLICES, world_size)
    for pair in PAIRS:
        sketch = merged[pair]
        arrays = {name: getattr(sketch, name) for name in ARRAYS}
        np.savez(Path(folder, f"rank{rank}-{PAIRS.index(pair)}.npz"), **arrays)
    dist.destroy_process_group()


@pytest.mark.parametrize(
    "world_size",
    [2, *(pytest.param(size, marks=pytest.mark.slow) for size in (1, 4, 8))],
)
def test_workers_agree_with_one_unsharded_sketch(world_size: int, tmp_path: Path) -> None:
    mp.spawn(work, (world_size, str(tmp_path)), nprocs=world_size)
    for number, pair in enumerate(PAIRS):
        whole = LogRatioSketch()
        for rank in reversed(range(world_size)):
            for step in range(number, STEPS, 2):
                whole.update(*shard(rank, step))
        assert whole.n("post_tool") > 0, pair
        for rank in range(world_size):
            merged = np.load(tmp_path / f"rank{rank}-{number}.npz")
            for name in ARRAYS:
                if name == "sequences":
                    np.testing.assert_allclose(merged[name], whole.sequences, rtol=1e-9)
                else:
                    assert np.array_equal(merged[name], getattr(whole, name)), (pair, name)
