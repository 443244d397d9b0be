"""Runs that the trackers' own libraries write. They weigh 200 MB together, so that they are an extra of their own.

`make test-trackers` runs these. The files in `data/`, which the other tests read, were written by the same functions.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from foreshock.run import Run
from foreshock.sources import find_runs, open_run

LOSS = [1 / step for step in range(1, 301)]
KL = [math.nan if step == 3 else math.inf if step == 4 else step / 8 for step in range(1, 301)]

PREPARE = """
import math, sys
folder, steps = sys.argv[1], int(sys.argv[2])
rows = [
    {"loss": 1 / step, "kl": math.nan if step == 3 else math.inf if step == 4 else step / 8}
    for step in range(1, steps + 1)
]
"""
WANDB = """
import wandb
with wandb.init(dir=folder, project="grpo", name="first", config={"beta": 0.04, "model": {"size": 3}}) as run:
    for step, row in enumerate(rows, 1):
        run.log({f"train/{key}": value for key, value in row.items()} | {"train/global_step": 10 * step, "note": "x"})
    run.log({"eval/loss": 0.5, "train/global_step": 10 * steps})
    run.summary["best"] = 7
"""
MLFLOW = """
import mlflow
mlflow.set_tracking_uri(folder)
mlflow.set_experiment("grpo")
for name in ("first", "second"):
    with mlflow.start_run(run_name=name):
        for step, row in enumerate(rows, 1):
            mlflow.log_metrics(row | {"system/memory": 1.0, "rewards/f": 0.5}, step=step)
"""
TRACKIO = """
import trackio
for name in ("first", "second"):
    trackio.init(project="grpo", name=name, config={"beta": 0.04}, embed=False, auto_log_cpu=False, auto_log_gpu=False)
    for step, row in enumerate(rows, 1):
        trackio.log({f"train/{key}": value for key, value in row.items()} | {"train/global_step": 10 * step})
    trackio.finish()
"""
OFFLINE = {
    "WANDB_MODE": "offline",
    "WANDB_SILENT": "true",
    "WANDB_ERROR_REPORTING": "false",
    "WANDB_X_DISABLE_META": "true",
    "WANDB_X_DISABLE_STATS": "true",
    "WANDB_CONSOLE": "off",
    "WANDB_DISABLE_GIT": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ALLOW_FILE_STORE": "true",
    "HF_HUB_OFFLINE": "1",
    "DO_NOT_TRACK": "1",
}


def write(library: str, program: str, folder: Path | str, home: Path, steps: int = 40) -> None:
    """Run a library in a process of its own: each starts threads, servers or hooks that outlive a test."""
    if find_spec(library) is None:
        pytest.skip(f"{library} is not installed; `make test-trackers` brings it")
    environment = {**os.environ, **OFFLINE, "HOME": str(home), "TRACKIO_DIR": str(folder)}
    command = [sys.executable, "-c", PREPARE + program, str(folder), str(steps)]
    subprocess.run(command, env=environment, cwd=home, check=True, capture_output=True, timeout=200)


def check(run: Run, steps: list[int]) -> None:
    assert run.series["loss"].steps.tolist() == steps
    assert run.series["loss"].values.tolist() == LOSS[: len(steps)]
    np.testing.assert_array_equal(run.series["kl"].values, KL[: len(steps)])


def test_a_wandb_run(tmp_path: Path) -> None:
    write("wandb", WANDB, tmp_path, tmp_path, steps=300)  # over several blocks of the file
    (path,) = find_runs(tmp_path)
    run = open_run(path)
    check(run, list(range(10, 3001, 10)))
    assert run.series["eval_loss"].values.tolist() == [0.5]
    assert run.identity["config"] == {"beta": 0.04, "model": {"size": 3}}
    assert run.identity["summary"] == {"best": 7}
    assert run.identity["wandb"]["project"] == "grpo"
    assert open_run(tmp_path).series.keys() == run.series.keys()


def test_an_mlflow_database(tmp_path: Path) -> None:
    write("mlflow", MLFLOW, f"sqlite:///{tmp_path}/mlflow.db", tmp_path)
    assert len(find_runs(tmp_path)) == 2
    for path in (*find_runs(tmp_path / "mlflow.db"), tmp_path / "mlflow.db#second"):
        check(open_run(path), list(range(1, 41)))


def test_an_mlflow_file_store(tmp_path: Path) -> None:
    write("mlflow", MLFLOW, tmp_path / "mlruns", tmp_path)
    assert len(find_runs(tmp_path)) == 2
    for path in find_runs(tmp_path / "mlruns"):
        check(open_run(path), list(range(1, 41)))


def test_a_trackio_database(tmp_path: Path) -> None:
    write("trackio", TRACKIO, tmp_path, tmp_path)
    before = sorted(tmp_path.iterdir())
    assert len(find_runs(tmp_path)) == 2
    for path in (*find_runs(tmp_path), tmp_path / "grpo.db#first"):
        check(open_run(path), list(range(10, 401, 10)))
    assert sorted(tmp_path.iterdir()) == before, "reading leaves nothing behind"
