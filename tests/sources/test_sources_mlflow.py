from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foreshock.errors import ReadError
from foreshock.sources import find_runs, open_run
from foreshock.sources.compressed import TORN
from foreshock.sources.mlflow import SYSTEM, read_folder
from foreshock.sources.settle import SUPERSEDED


def store(folder: Path, metrics: dict[str, str]) -> Path:
    """The folder of a run, as a file store of MLflow has it."""
    folder.mkdir(parents=True)
    (folder / "meta.yaml").write_text("run_name: first\n")
    (folder / "metrics").mkdir()
    for name, content in metrics.items():
        path = folder / "metrics" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)
    return folder


def test_the_files_of_a_run_are_its_series(tmp_path: Path) -> None:
    folder = store(tmp_path / "run", {"kl": "1 0.5 1\n2 nan 2\n3 inf 3\n", "rewards/f": "1 1.0 1\n3 2.0 3 data d1g\n"})
    run = open_run(folder)
    assert run.series["kl"].steps.tolist() == [1, 2, 3]
    assert run.series["kl"].values[0] == 0.5
    assert math.isnan(run.series["kl"].values[1])
    assert run.series["kl"].values[2] == math.inf
    assert run.series["rewards/f"].steps.tolist() == [1, 3]
    assert run.identity["source"]["rows"] == 3
    assert not run.skipped


def test_a_resume_is_seen_over_all_files_by_the_time_of_their_lines(tmp_path: Path) -> None:
    loss = "".join(f"{time} {time} {step}\n" for time, step in enumerate([1, 2, 3, 4, 5, 3, 4, 5, 6]))
    folder = store(tmp_path / "run", {"loss": loss, "eval_loss": "3 0.1 4\n7 0.2 5\n"})
    run = open_run(folder)
    assert run.series["loss"].values.tolist() == [0, 1, 5, 6, 7, 8]
    assert run.series["eval_loss"].values.tolist() == [0.2]
    assert run.skipped == {SUPERSEDED: 3}


def test_torn_lines_and_system_metrics_are_counted(tmp_path: Path) -> None:
    folder = store(
        tmp_path / "run",
        {"loss": "1 0.5 1\n2 x 2\n3 0.5\n4 0.5 1e3\n5 0.4 2\n6 0.", "system/cpu": "1 50 0\n2 50 1\n"},
    )
    run = open_run(folder)
    assert run.series.keys() == {"loss"}
    assert run.series["loss"].values.tolist() == [0.5, 0.4]
    assert run.skipped == {TORN: 4, SYSTEM: 2}


def test_a_store_lists_its_runs(tmp_path: Path) -> None:
    for run in ("a", "b"):
        store(tmp_path / "mlruns" / "1" / run, {"loss": "1 0.5 1\n"})
    (tmp_path / "mlruns" / "1" / "meta.yaml").write_text("name: grpo\n")
    store(tmp_path / "mlruns" / ".trash" / "1" / "c", {"loss": "1 0.5 1\n"})
    assert find_runs(tmp_path) == [tmp_path / "mlruns" / "1" / run for run in ("a", "b")]
    with pytest.raises(ReadError, match=r"holds 2 runs\. Pass one of them: .*/1/a, .*/1/b\."):
        open_run(tmp_path / "mlruns")


@settings(deadline=None, max_examples=60)
@given(
    content=st.lists(st.sampled_from([*"0123456789.- \n", "nan", "\n1 1 1\n", "9" * 400, "1e999", "é"])).map("".join)
)
def test_lines_of_anything(tmp_path_factory: pytest.TempPathFactory, content: str) -> None:
    folder = tmp_path_factory.mktemp("run")
    run = read_folder(store(folder / "run", {"a": content, "loss": "1 0.5 1\n"}))
    assert run.series["loss"].values.tolist() == [0.5]


def test_a_run_without_metrics(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match="an MLflow run without metrics"):
        open_run(store(tmp_path / "run", {}))
