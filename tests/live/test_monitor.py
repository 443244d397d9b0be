"""The monitor on token batches: one worker against several real ones, and its cadence."""

import json
import os
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
import torch

from foreshock.batch import PAIRS, TokenBatch
from foreshock.live.monitor import Monitor, MonitorConfig
from foreshock.run import Run, RunWriter, StoredBlocks, prepare_directory, read_run_directory


def batches(steps=23, rows=6, length=40):
    """Micro-batches of a run; one holds no response token, one only NaN."""
    generator = torch.Generator().manual_seed(0)
    for step in range(1, steps + 1):
        observation = torch.zeros(rows, length)
        observation[: rows // 2, 10:15] = 1
        response = 1 - observation
        if step == 4:
            response = torch.zeros_like(response)
        policy = -torch.rand(rows, length, generator=generator)
        ref = policy + 0.3 * torch.randn(rows, length, generator=generator)
        if step == 7:
            ref = torch.full_like(ref, torch.nan)
        yield TokenBatch(response, observation, {"policy": policy, "ref": ref})


def rows_of(batch, rows):
    logs = {name: tensor[rows] for name, tensor in batch.log_probs.items()}
    return TokenBatch(batch.response_mask[rows], batch.observation_mask[rows], logs)


def start(folder, *, leader=True, **options):
    writer = RunWriter(prepare_directory(folder), start_step=0, identity={}, notices={}) if leader else None
    return Monitor(
        MonitorConfig(PAIRS, **options), device=torch.device("cpu"), writer=writer, run=Run(blocks=StoredBlocks())
    )


def work(rank, world, folder):
    """What one of several workers does: its share of the rows of every step, none at all in step 9 on worker 1."""
    monitor = start(folder, leader=rank == 0)
    for step, batch in enumerate(batches(), start=1):
        if world == 1 or not (rank == 1 and step == 9):
            monitor.observe(rows_of(batch, slice(rank, None, world)))
        if world > 1 and rank == 0 and step == 9:
            monitor.observe(rows_of(batch, slice(1, None, world)))
        monitor.end_step(step)
    monitor.finish(23)
    monitor.end("finished")
    return monitor.errors


def without_data(rank, world, folder):
    """Worker 1 has no reference, worker 2 only NaN, worker 3 no response token and no rows at all in the last step."""
    monitor = start(folder, leader=rank == 0, steps_per_block=3)
    for step, batch in enumerate(batches(steps=3, rows=4), start=1):
        logs = dict(batch.log_probs)
        if rank == 1:
            del logs["ref"]
        if rank == 2:
            logs["ref"] = torch.full_like(logs["ref"], torch.nan)
        response = torch.zeros_like(batch.response_mask) if rank == 3 else batch.response_mask
        batch = TokenBatch(response, batch.observation_mask, logs)
        monitor.observe(rows_of(batch, slice(0, 0)) if rank == 3 and step == 3 else batch)
        monitor.end_step(step)
    monitor.finish(3)
    monitor.end("finished")
    return monitor.errors


def ahead(rank, world, folder):
    """Worker 0 ends its step, goes on to the next one, and only then lets worker 1 end its own."""
    monitor, signal = start(folder, leader=rank == 0, steps_per_block=1), f"{folder}.signal"
    first, second = batches(steps=2)
    monitor.observe(first)
    deadline = time.monotonic() + 60
    while rank == 1 and not os.path.exists(signal):
        assert time.monotonic() < deadline, "worker 0 waited for worker 1 inside its step"
        time.sleep(0.01)
    monitor.end_step(1)
    monitor.observe(second)
    if rank == 0:
        assert not monitor.run.blocks  # what was sent off is collected with the next step
        open(signal, "w").close()
    monitor.end_step(2)
    assert len(monitor.run.blocks) == 1
    monitor.finish(2)
    monitor.end("finished")
    return monitor.errors


def run_workers(world, folder, job="work"):
    code = (
        f"import sys, torch.distributed as dist; sys.path.insert(0, sys.argv[1]); from test_monitor import {job}; "
        "rank, world = int(sys.argv[2]), int(sys.argv[3]); "
        "dist.init_process_group('gloo', init_method='file://' + sys.argv[4], rank=rank, world_size=world); "
        f"errors = {job}(rank, world, sys.argv[5]); dist.destroy_process_group(); sys.exit(errors)"
    )
    here, store = __file__.rpartition("/")[0], str(folder) + ".store"
    processes = [
        subprocess.Popen([sys.executable, "-c", code, here, str(rank), str(world), store, str(folder)])
        for rank in range(world)
    ]
    assert [process.wait(timeout=120) for process in processes] == [0] * world


def test_two_workers_give_the_numbers_of_one(tmp_path):
    assert work(0, 1, tmp_path / "one") == 0
    run_workers(2, tmp_path / "two")
    one, two = read_run_directory(tmp_path / "one"), read_run_directory(tmp_path / "two")
    assert [(block.first_step, block.last_step) for block in two.blocks] == [(1, 10), (11, 20), (21, 23)]
    for alone, merged in zip(one.blocks, two.blocks, strict=True):
        assert (alone.workers, merged.workers) == (1, 2)
        assert alone.counters["workers/policy/ref"][-1] == 1
        assert merged.counters["workers/policy/ref"][-1] == 2  # in the short last block, too
        left, right = alone.sketches["policy/ref"], merged.sketches["policy/ref"]
        np.testing.assert_array_equal(left.counts, right.counts)
        np.testing.assert_array_equal(left.extremes, right.extremes)
        np.testing.assert_array_equal(left.fractions, right.fractions)
        for name in ("rows", "response_tokens", "observation_tokens", "post_tool_tokens", "nonfinite/ref"):
            assert alone.counters[name] == merged.counters[name], name


def test_workers_without_data_take_part_and_are_counted(tmp_path):
    run_workers(4, tmp_path / "run", "without_data")
    (block,) = read_run_directory(tmp_path / "run").blocks
    assert block.workers == 4
    assert block.counters["workers/policy/ref"] == (0, 0, 2)
    assert block.total("workers/policy/old") == 0
    assert block.counters["rows"] == (16, 16, 12)
    sketch = block.sketches["policy/ref"]
    assert sketch.n("text_only") + sketch.n("post_tool") == sketch.tallies.sum() == 3 * (4 * 40 - 2 * 5)


def test_a_worker_goes_on_while_the_others_are_still_at_the_block(tmp_path):
    run_workers(2, tmp_path / "run", "ahead")
    assert len(read_run_directory(tmp_path / "run").blocks) == 2


def test_counters_have_one_entry_a_step(tmp_path):
    work(0, 1, tmp_path)
    run = read_run_directory(tmp_path)
    first = run.blocks[0]
    assert first.counters["rows"] == (6.0,) * 10
    assert first.counters["response_tokens"][3] == 0
    assert first.counters["response_tokens"][0] == 6 * 40 - 3 * 5
    assert first.counters["post_tool_tokens"][0] == 3 * 25
    assert first.counters["nonfinite/ref"][6] == 6 * 40 - 3 * 5
    assert len(run.blocks[2].counters["rows"]) == 3


def test_a_worker_that_fails_at_packing_still_takes_part(tmp_path, monkeypatch):
    monitor = start(tmp_path, steps_per_block=2)
    size = sum(monitor._buffer_sizes)
    monkeypatch.setattr(monitor._sketch, "pack", lambda: 1 / 0)
    buffer = monitor._pack()
    assert buffer.shape == (size,)
    assert not buffer.any()
    assert monitor.errors == 1


def test_a_monitor_that_cannot_write_goes_on(tmp_path):
    monitor = start(tmp_path, steps_per_block=1)
    for file in monitor._writer._files.values():
        file.close()
    for step, batch in enumerate(batches(steps=3), start=1):
        monitor.observe(batch)
        monitor.log(step, {"loss": 1.0})
        monitor.end_step(step)
    monitor.finish(3)
    assert monitor.errors >= 3
    assert len(monitor.run.blocks) == 3


@pytest.mark.parametrize("value", [1, 1.5, np.float64(2.0), torch.tensor(3.0)])
def test_logged_numbers_of_any_make_are_recorded(tmp_path, value):
    monitor = start(tmp_path)
    monitor.log(1, {"loss": value, "text": "x"})
    monitor.end("finished")
    line = json.loads((tmp_path / "metrics.jsonl").read_text())
    assert line["values"]["loss"] == float(value)
    assert read_run_directory(tmp_path).series["loss"].values.tolist() == [float(value)]


def test_masked_tokens_are_counted_once_beside_user_slices(tmp_path):
    monitor = start(tmp_path / "run", slices=("text_only", "post_tool", "a", "b"))
    batch = next(batches(steps=1))
    columns = torch.arange(batch.response_mask.shape[1]).expand_as(batch.response_mask)
    monitor.observe(replace(batch, user_slices=columns % 3 - 1))  # a third of the tokens are in no user slice
    monitor.end_step(1)
    monitor.finish(1)
    assert monitor.errors == 0
    sketch = monitor.run.blocks[0].sketches["policy/ref"]
    is_response = batch.response_mask.bool()
    assert sketch.masked == (~is_response).sum()
    assert sketch.outside == 0
    assert [sketch.n(name) for name in "ab"] == [(is_response & (columns % 3 == i)).sum() for i in (1, 2)]
