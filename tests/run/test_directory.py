import json
import math
import signal
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foreshock.errors import ReadError, RunDirectoryError
from foreshock.run import Block, RunWriter, prepare_directory, read_findings, read_run_directory
from foreshock.sketch import LogRatioSketch


def make_block(index, first, last, seed=0):
    sketch = LogRatioSketch()
    rng = np.random.default_rng(seed + index)
    sketch.update(rng.normal(size=500), rng.integers(0, 2, size=500))
    counters = {"rows": (4.0,) * (last - first + 1), "errors": (0.0,) * (last - first + 1)}
    return Block(index, first, last, {"policy/ref": sketch}, workers=2, counters=counters)


def write_session(folder, start, stop, *, close=True, seed=0):
    writer = RunWriter(folder, start_step=start, identity={"model": {"name": "tiny"}}, notices={})
    for step in range(start + 1, stop + 1):
        writer.write_metrics(step, {"loss": step + seed / 10, "reward": 0.5})
        if step % 10 == 0:
            writer.write_block(make_block(step // 10, step - 9, step, seed))
    if close:
        writer.end("finished")
    return writer


def test_what_was_written_is_read_back(tmp_path):
    folder = prepare_directory(tmp_path / "new" / "run")
    write_session(folder, 0, 30)
    run = read_run_directory(folder)
    assert run.series["loss"].steps.tolist() == list(range(1, 31))
    assert run.series["loss"].values.tolist() == [float(step) for step in range(1, 31)]
    assert [(block.first_step, block.last_step) for block in run.blocks] == [(1, 10), (11, 20), (21, 30)]
    expected = make_block(2, 11, 20).sketches["policy/ref"]
    np.testing.assert_array_equal(run.blocks[1].sketches["policy/ref"].counts, expected.counts)
    assert run.blocks[1].workers == 2
    assert run.blocks[1].total("rows") == 40
    assert run.identity["model"] == {"name": "tiny"}
    assert run.identity["status"] == "finished"
    assert not run.skipped


def test_values_that_json_has_no_number_for_survive(tmp_path):
    folder = prepare_directory(tmp_path)
    writer = RunWriter(folder, start_step=0, identity={}, notices={})
    writer.write_metrics(1, {"kl": math.nan, "loss": math.inf, "reward": -math.inf})
    for line in (folder / "metrics.jsonl").read_text().splitlines():
        json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    run = read_run_directory(folder)
    assert math.isnan(run.series["kl"].values[0])
    assert run.series["loss"].values[0] == math.inf
    assert run.series["reward"].values[0] == -math.inf


def test_a_resume_appends_and_supersedes_what_lies_behind_its_checkpoint(tmp_path):
    folder = prepare_directory(tmp_path)
    write_session(folder, 0, 30)
    before = (folder / "metrics.jsonl").read_bytes()
    write_session(folder, 20, 40, seed=5)
    assert (folder / "metrics.jsonl").read_bytes().startswith(before)
    run = read_run_directory(folder)
    assert run.series["loss"].steps.tolist() == list(range(1, 41))
    assert run.series["loss"].values[19] == 20.0
    assert run.series["loss"].values[20] == 21.5
    assert [block.last_step for block in run.blocks] == [10, 20, 30, 40]
    assert run.skipped["superseded by a later session"] == 11


def test_a_new_run_in_the_same_folder_supersedes_the_old_one_and_erases_nothing(tmp_path):
    folder = prepare_directory(tmp_path)
    write_session(folder, 0, 30)
    write_session(folder, 0, 10, seed=5)
    run = read_run_directory(folder)
    assert run.series["loss"].steps.tolist() == list(range(1, 11))
    assert len((folder / "metrics.jsonl").read_text().splitlines()) == 40


def test_a_torn_last_line_is_counted_and_the_next_session_starts_on_a_new_line(tmp_path):
    folder = prepare_directory(tmp_path)
    write_session(folder, 0, 10, close=False)
    with open(folder / "metrics.jsonl", "ab") as file:
        file.write(b'{"schema": 1, "session": 0, "step": 11, "val')
    assert read_run_directory(folder).skipped["torn or damaged lines in metrics.jsonl"] == 1
    write_session(folder, 10, 12)
    run = read_run_directory(folder)
    assert run.series["loss"].steps.tolist() == list(range(1, 13))
    assert run.skipped["torn or damaged lines in metrics.jsonl"] == 1


WRITER = """
import sys
from foreshock.run import RunWriter, prepare_directory
writer = RunWriter(prepare_directory(sys.argv[1]), start_step=0, identity={}, notices={})
step = 0
while True:
    step += 1
    writer.write_metrics(step, {"loss": float(step)})
    if step % 1000 == 0:
        print(step, flush=True)
"""


def test_a_killed_process_loses_no_written_record(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    announced = int(process.stdout.readline())
    process.send_signal(signal.SIGKILL)
    process.wait()
    announced = max([announced, *map(int, process.stdout.read().split())])
    run = read_run_directory(tmp_path)
    assert len(run.series["loss"]) >= announced
    assert run.series["loss"].steps.tolist() == list(range(1, len(run.series["loss"]) + 1))
    assert run.identity["status"] == "running"
    assert sum(run.skipped.values()) <= 1


def test_a_run_dir_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(RunDirectoryError, match="is a file"):
        prepare_directory(tmp_path / "file")


def test_a_run_dir_that_cannot_be_written_to_is_refused(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(RunDirectoryError, match="cannot be written to"):
        prepare_directory(tmp_path / "file" / "run")


def test_a_folder_that_is_no_run_says_so(tmp_path):
    with pytest.raises(ReadError, match="is not a run directory"):
        read_run_directory(tmp_path)


@pytest.mark.parametrize("content", ["", "[]", '{"schema": 1}', '{"schema": 2, "sessions": []}', "\x00\xff"])
def test_a_damaged_run_json_is_a_clear_error(tmp_path, content):
    (tmp_path / "run.json").write_text(content)
    with pytest.raises(ReadError, match=r"run\.json"):
        read_run_directory(tmp_path)


def test_findings_are_read_back(tmp_path):
    folder = prepare_directory(tmp_path)
    writer = RunWriter(folder, start_step=0, identity={}, notices={})
    writer.write_finding({"rule": "x", "severity": "warning"})
    assert read_findings(folder)[0]["rule"] == "x"


@settings(max_examples=60, deadline=None)
@given(junk=st.lists(st.binary(max_size=60), max_size=6), cut=st.integers(0, 4000))
def test_damaged_files_never_raise_and_lose_only_what_is_damaged(tmp_path_factory, junk, cut):
    folder = prepare_directory(tmp_path_factory.mktemp("run"))
    write_session(folder, 0, 10)
    for name in ("metrics.jsonl", "blocks.jsonl"):
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content + b"\n".join(junk) + b"\n" + content[:cut])
    run = read_run_directory(folder)
    assert run.series["loss"].steps.tolist()[:10] == list(range(1, 11))
    assert run.blocks[0].last_step == 10
