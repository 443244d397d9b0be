"""Following a run directory while it is written."""

import numpy as np
import pytest

from foreshock.errors import ReadError
from foreshock.run import Block, Run, RunReader, RunWriter, prepare_directory, read_run_directory
from foreshock.sketch import LogRatioSketch


def block(index):
    sketch = LogRatioSketch()
    sketch.update(np.random.default_rng(index).normal(size=200), np.zeros(200, int))
    return Block(index, 10 * index + 1, 10 * index + 10, {"policy/ref": sketch})


@pytest.fixture
def folder(tmp_path):
    return prepare_directory(tmp_path / "run")


@pytest.fixture
def writer(folder):
    return RunWriter(folder, start_step=0, identity={"trainer": "t"}, notices={})


def steps(run):
    return run.series["loss"].steps.tolist(), [found.last_step for found in run.blocks]


def test_every_further_read_adds_what_was_written_since(folder, writer):
    reader = RunReader(folder)
    assert not reader.read().series
    for index in range(3):
        for step in range(10 * index + 1, 10 * index + 11):
            writer.write_metrics(step, {"loss": 0.5 * step})
        writer.write_block(block(index))
        run = reader.read()
        assert steps(run) == steps(read_run_directory(folder))
        assert run.last_step == 10 * index + 10
    assert run is reader.read()
    writer.end("finished")
    assert reader.read().identity["status"] == "finished"


def test_what_was_read_is_not_read_again(folder, writer):
    reader = RunReader(folder)
    writer.write_metrics(1, {"loss": 1.0})
    reader.read()
    metrics = folder / "metrics.jsonl"
    metrics.write_bytes(b"x" * (metrics.stat().st_size - 1) + b"\n")
    writer.write_metrics(2, {"loss": 2.0})
    run = reader.read()
    assert run.series["loss"].steps.tolist() == [1, 2]
    assert not run.skipped


def test_a_line_that_is_being_written_waits_for_its_end(folder, writer):
    reader = RunReader(folder)
    writer.write_metrics(1, {"loss": 1.0})
    line = (folder / "metrics.jsonl").read_bytes().replace(b'"step":1', b'"step":2')
    with open(folder / "metrics.jsonl", "ab") as file:
        file.write(line[:20])
        file.flush()
        assert reader.read().series["loss"].steps.tolist() == [1]
        assert reader.unfinished() == ["metrics.jsonl"]
        file.write(line[20:])
    assert reader.read().series["loss"].steps.tolist() == [1, 2]
    assert not reader.unfinished()
    assert not reader.run.skipped


def test_a_resume_supersedes_what_was_read(folder, writer):
    reader = RunReader(folder)
    for step in range(1, 21):
        writer.write_metrics(step, {"loss": 1.0})
    assert reader.read().series["loss"].steps[-1] == 20
    second = RunWriter(folder, start_step=10, identity={}, notices={})
    second.write_metrics(11, {"loss": 3.0})
    run = reader.read()
    assert run.series["loss"].steps.tolist() == list(range(1, 12))
    assert run.skipped["superseded by a later session"] == 10


def test_a_folder_that_is_no_run_directory(tmp_path):
    with pytest.raises(ReadError, match=r"holds no run\.json"):
        RunReader(tmp_path)


def test_a_bounded_run_is_thinned_when_it_is_read_as_when_it_was_watched(tmp_path):
    writer = RunWriter(prepare_directory(tmp_path / "run"), start_step=0, identity={}, notices={})
    watched = Run(bounded=True)
    for step in range(1, 20_001):
        writer.write_metrics(step, {"loss": step / 2})
        watched.append_scalars(step, {"loss": step / 2})
    writer.close()
    read = read_run_directory(tmp_path / "run", bounded=True)
    assert len(read.series["loss"]) < len(read_run_directory(tmp_path / "run").series["loss"]) == 20_000
    for run in (read, watched):
        run.append_scalars(20_001, {"loss": 0.0})
    assert read.series["loss"].steps.tolist() == watched.series["loss"].steps.tolist()
    assert read.series["loss"].values.tolist() == watched.series["loss"].values.tolist()
    assert read.series["loss"].appended == 20_001
