"""The demo command itself, short; with two processes as its page tells it."""

import os
import subprocess
import sys

import pytest

from foreshock.lab import demo
from foreshock.run import read_run_directory


@pytest.mark.slow
@pytest.mark.parametrize("arm", ["fixed", "drift_aware", "constrained"])
def test_every_arm_runs_and_leaves_a_report(tmp_path, cache, arm, capfd):
    demo.run(arm=arm, seed=0, steps=14, model="tiny", run_dir=tmp_path / "run")
    run = read_run_directory(tmp_path / "run")
    assert [block.last_step for block in run.blocks] == [6, 12, 14]
    assert run.blocks[0].sketches["policy/ref"].n("post_tool") > 300
    assert (tmp_path / "run" / "report.html").exists()
    said = capfd.readouterr().err
    assert "curriculum" in said
    assert "report.html" in said


@pytest.mark.slow
def test_two_processes_give_one_run_directory_from_merged_blocks(tmp_path, cache):
    command = [
        sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2",
        "--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", "0",
        "-m", "foreshock", "demo", "--steps", "12", "--run-dir", str(tmp_path / "run"),
    ]  # fmt: skip
    environment = {**os.environ, "ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"}
    subprocess.run(command, check=True, env=environment, timeout=280, capture_output=True)
    run = read_run_directory(tmp_path / "run")
    assert run.identity["workers"]["world_size"] == 2
    assert [block.workers for block in run.blocks] == [2, 2]
    assert [block.total("rows") for block in run.blocks] == [6 * 160, 6 * 160]
    assert run.series["reward"].steps.tolist() == list(range(1, 13))
    assert not run.skipped
    assert (tmp_path / "run" / "report.html").exists()
