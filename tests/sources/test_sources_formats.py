from __future__ import annotations

import contextlib
import gzip
import json
import math
import os
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foreshock.diagnosis import diagnose_run
from foreshock.errors import ReadError
from foreshock.run import Run
from foreshock.sources import (
    console,
    csv_table,
    database,
    describe,
    find_runs,
    jsonl,
    mlflow,
    open_run,
    tensorboard,
    trainer_state,
    wandb,
)

Written = Callable[..., Path]

STATE = json.dumps(
    {"log_history": [{"step": step, "loss": 0.5, "epoch": step / 9, "kl": float("nan")} for step in range(9)]}, indent=2
)
SAMPLES = {
    "trainer_state.json": STATE,
    "JSONL metrics": '{"step": 1, "loss": NaN}\n{"step": 2, "data": {"loss": 0.5}}\n{"step": 1, "a": "nan"}\n' * 3,
    "CSV": 'step,loss,"a b"\n1,0.5,3\n2,nan,"4"\n3,,\n' * 2,
    "console log (dict lines)": "it\r{'loss': 0.1, 'kl': np.float64(nan), 'epoch': 0.5}\x1b[0m\n" * 4,
    "console log (verl lines)": "step:1 - actor/entropy:0.5 - actor/lr:1e-06\nstep:2 - actor/entropy:0.4\n",
    "console log (key=value lines)": "Step 4: loss=0.25, kl: nan\n[iter 5/9] loss=0.5\n",
}
READERS = (
    *(trainer_state.read, jsonl.read, csv_table.read, console.read),
    *(tensorboard.read, wandb.read, database.read, mlflow.read_folder),
)
STARTS = (b"", b":W&B\xe1\xbe\x00", b"SQLite format 3\0\x10\0\1\1\0@  ", b"\x1f\x8b\x08\0", b"\x28\xb5\x2f\xfd")
"""Of a file of any kind, a W&B file, a database, and of compressed ones."""


@pytest.mark.parametrize("name", SAMPLES)
def test_the_content_says_the_format(written: Written, name: str) -> None:
    assert open_run(written(SAMPLES[name], "events.bin")).identity["source"]["format"] == name
    assert open_run(written(gzip.compress(SAMPLES[name].encode()))).identity["source"]["format"] == name


def test_binary_junk_is_refused_with_what_was_tried(written: Written) -> None:
    with pytest.raises(ReadError) as caught:
        open_run(written(random.Random(0).randbytes(50_000)))
    message = str(caught.value)
    assert "is a binary file that starts with b'" in message
    for name in ("trainer_state.json", "JSONL metrics", "CSV", "console log"):
        assert name in message
    assert "Pass such a file" in message


@pytest.mark.parametrize("content", ["", "\n\n", "\0\0\0\0"])
def test_an_empty_file(written: Written, content: str) -> None:
    with pytest.raises(ReadError, match=r"is empty\. Pass a log that holds rows"):
        open_run(written(content))


def test_a_path_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match=r"does not exist\. Pass a log file or the folder of a run"):
        open_run(tmp_path / "none")
    with pytest.raises(ReadError):
        open_run("a\0b")


def test_a_folder_without_a_run_says_what_it_holds(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match=r"no run.json, .*no log with a row of training at its start, but no file"):
        open_run(tmp_path)
    (tmp_path / "train.log").write_text("x")
    with pytest.raises(ReadError, match=r"but train.log\. Pass the folder of a run"):
        open_run(tmp_path)


def test_a_folder_with_metrics(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "loss": 0.5}\n')
    assert open_run(tmp_path).series["loss"].values.tolist() == [0.5]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(written: Written) -> None:
    path = written("x")
    path.chmod(0)
    with pytest.raises(ReadError, match="cannot be opened"):
        open_run(path)


def attempts(path: Path) -> list[Run]:
    runs = []
    for read in (open_run, *READERS):
        with contextlib.suppress(ReadError):
            runs.append(read(path))
    return runs


def check(run: Run) -> None:
    for series in run.series.values():
        assert len(series.steps) == len(series.values) > 0
        assert (np.diff(series.steps) > 0).all()
    assert all(count > 0 for count in run.skipped.values())
    json.dumps(describe(run))


@settings(deadline=None, max_examples=150)
@given(start=st.sampled_from(STARTS), content=st.binary(max_size=300))
def test_random_bytes_raise_nothing_but_read_errors(
    tmp_path_factory: pytest.TempPathFactory, start: bytes, content: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "random"
    path.write_bytes(start + content)
    for run in attempts(path):
        check(run)
    assert find_runs(path) == [path]


@pytest.mark.parametrize("name", SAMPLES)
def test_nan_everywhere_is_read_and_never_called_healthy(written: Written, name: str) -> None:
    rows = {
        "trainer_state.json": json.dumps({"log_history": [{"step": n, "loss": math.nan} for n in range(1, 101)]}),
        "JSONL metrics": "".join(f'{{"step": {n}, "loss": NaN}}\n' for n in range(1, 101)),
        "CSV": "step,loss\n" + "".join(f"{n},nan\n" for n in range(1, 101)),
        "console log (dict lines)": "{'loss': nan, 'epoch': 0.5}\n" * 100,
        "console log (verl lines)": "".join(f"step:{n} - loss:nan\n" for n in range(1, 101)),
        "console log (key=value lines)": "".join(f"step {n}: loss=nan\n" for n in range(1, 101)),
    }
    run = open_run(written(rows[name]))
    assert run.identity["source"]["format"] == name
    assert len(run.series["loss"]) == 100
    assert np.isnan(run.series["loss"].values).all()
    assert diagnose_run(run).verdict != "healthy"


PIECES = st.sampled_from(
    [
        *"{}'\",:=[]/_\n\r\0\ufeff\u0663",
        *("\x1b[", "\x1b]", "[" * 2000, '{"a":' * 2000, " - ", "step:3 - ", "step", '"step"', "loss", "{'loss': "),
        *("1", "-1", "1e400", "9" * 400, "9" * 5000, "nan", "NaN", "None", "true", "1/2", '"\\ud800"'),
        *('"log_history"', '"data"', "np.float64(", "np.float64(1)"),
    ]
)


@settings(deadline=None, max_examples=250)
@given(
    sample=st.sampled_from(sorted(SAMPLES.values())),
    edits=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 12), PIECES), max_size=8),
    packed=st.booleans(),
    cut=st.integers(0, 40),
)
def test_mutated_samples_raise_nothing_but_read_errors(
    tmp_path_factory: pytest.TempPathFactory,
    sample: str,
    edits: list[tuple[float, int, str]],
    packed: bool,
    cut: int,
) -> None:
    for place, removed, piece in edits:
        start = int(place * len(sample))
        sample = sample[:start] + piece + sample[start + removed :]
    content = sample.encode("utf-8", "surrogatepass")
    path = tmp_path_factory.getbasetemp() / "mutated"
    path.write_bytes(gzip.compress(content)[: -cut or None] if packed else content)
    for run in attempts(path):
        check(run)
