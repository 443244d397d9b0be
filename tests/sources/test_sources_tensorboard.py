from __future__ import annotations

import gzip
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.tensorboard import SummaryWriter

from foreshock.errors import ReadError
from foreshock.sources import open_run, tensorboard
from foreshock.sources.rows import NO_NUMBER
from foreshock.sources.settle import SUPERSEDED
from foreshock.sources.tensorboard import DAMAGED, TORN


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 40 steps, as the Trainer logs it: train/loss, train/kl, and an evaluation every tenth step."""
    folder = tmp_path_factory.mktemp("events")
    with SummaryWriter(folder) as writer:
        for step in range(1, 41):
            writer.add_scalar("train/loss", 1 / step, step)
            # The second form of a scalar, a tensor without a shape, is what newer writers make.
            writer.add_scalar("train/kl", math.nan if step == 3 else step / 8, step, new_style=step % 2 == 0)
            if step % 10 == 0:
                writer.add_scalar("eval/loss", 0.5, step)
    return folder


def events(folder: Path) -> bytes:
    (file,) = folder.glob("events*")
    return file.read_bytes()


def test_every_scalar_of_a_writer_is_read(folder: Path) -> None:
    run = open_run(folder)
    assert run.identity["source"]["format"] == "TensorBoard event file"
    assert run.identity["source"]["rows"] == 40
    assert run.identity["source"]["keys"] == {"train/loss": "loss", "train/kl": "kl", "eval/loss": "eval_loss"}
    assert run.series["loss"].steps.tolist() == list(range(1, 41))
    np.testing.assert_array_equal(run.series["loss"].values, np.float32([1 / step for step in range(1, 41)]))
    expected = [math.nan if step == 3 else step / 8 for step in range(1, 41)]
    np.testing.assert_array_equal(run.series["kl"].values, expected)
    assert run.series["eval_loss"].steps.tolist() == [10, 20, 30, 40]
    assert not run.skipped


def test_a_file_is_known_by_its_first_record(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(gzip.compress(events(folder)))
    assert len(open_run(tmp_path / "log").series["loss"]) == 40


def test_the_files_of_a_restarted_run_are_one_run_in_the_order_of_their_beginning(tmp_path: Path) -> None:
    for begin, end, name in ((1, 21, "z"), (11, 31, "a")):
        writer = SummaryWriter(tmp_path / name)
        for step in range(begin, end):
            writer.add_scalar("reward", begin, step)
        writer.close()
        (file,) = (tmp_path / name).glob("events*")
        file.rename(tmp_path / f"{name}.tfevents")
    run = open_run(tmp_path)
    assert run.series["reward"].steps.tolist() == list(range(1, 31))
    assert run.series["reward"].values.tolist() == [1] * 10 + [11] * 20
    assert run.skipped == {SUPERSEDED: 10}


def test_what_is_no_scalar_is_counted_by_its_tag(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path) as writer:
        writer.add_scalar("loss", 0.5, 7)
        writer.add_histogram("logits", torch.arange(9.0), 7)
        writer.add_text("sample", "hello", 7)
        writer.add_tensor("weights", torch.ones(3), 7)
        writer.add_hparams({"beta": 0.04}, {"score": 1.0}, run_name="trial")
    run = open_run(tmp_path)
    assert list(run.series) == ["loss"]
    assert run.skipped == {NO_NUMBER: 3}
    assert set(run.identity["source"]["not_numbers"]) == {"logits", "sample/text_summary", "weights"}
    assert open_run(tmp_path / "trial").series["score"].values.tolist() == [1]


def test_events_without_a_scalar(tmp_path: Path) -> None:
    SummaryWriter(tmp_path).close()
    with pytest.raises(ReadError, match="holds TensorBoard events, but no scalar"):
        open_run(tmp_path)


def test_negative_steps(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path) as writer:
        writer.add_scalar("loss", 0.5, -1)
    assert open_run(tmp_path).series["loss"].steps.tolist() == [-1]


def boundaries(content: bytes) -> Iterator[int]:
    at = 0
    while at < len(content):
        yield at
        at += 16 + int.from_bytes(content[at : at + 8], "little")
    yield at


def test_a_torn_end_costs_the_last_record(folder: Path, tmp_path: Path) -> None:
    content = events(folder)
    *_, before, _ = boundaries(content)
    for cut in (before + 5, before + 14, len(content) - 1):
        (tmp_path / "log").write_bytes(content[:cut])
        run = open_run(tmp_path / "log")
        assert run.skipped == {TORN: 1}
        assert len(run.series["loss"]) == 40
        assert len(run.series["eval_loss"]) == 3
    (tmp_path / "log").write_bytes(content[:before])
    assert not open_run(tmp_path / "log").skipped


def test_a_damaged_record_costs_itself(folder: Path, tmp_path: Path) -> None:
    content = events(folder)
    starts = list(boundaries(content))
    for place in (0, 9, 12, 30):  # its length, the checksum of it, its message, its value
        damaged = bytearray(content)
        damaged[starts[5] + place] ^= 0x40
        (tmp_path / "log").write_bytes(damaged)
        run = open_run(tmp_path / "log")
        assert run.skipped == {DAMAGED: 1}
        assert sum(len(series) for series in run.series.values()) == 83


def test_zeros_at_the_end(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(events(folder) + bytes(3_000_000))
    run = open_run(tmp_path / "log")
    assert run.skipped == {DAMAGED: 1}
    assert len(run.series["loss"]) == 40


@settings(deadline=None, max_examples=100)
@given(data=st.data())
def test_damage_raises_nothing_but_read_errors(folder: Path, data: st.DataObject) -> None:
    content = bytearray(events(folder))
    for _ in range(data.draw(st.integers(1, 6))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = folder.parent / "damaged"
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    try:
        run = tensorboard.read(path)
    except ReadError:
        return
    whole = open_run(folder).series
    for name, series in run.series.items():  # what a checksum lets through is what was written
        values = dict(zip(whole[name].steps, whole[name].values, strict=True))
        np.testing.assert_array_equal(series.values, [values[step] for step in series.steps])
