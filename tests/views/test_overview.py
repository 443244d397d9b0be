from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from foreshock.diagnosis import Diagnosis
from foreshock.run import Run
from foreshock.views.overview import render_overview


def printed(paths, names=(), unreadable=None):
    found = [
        Diagnosis(Path(path), "healthy", run=Run(path=Path(path), identity={"name": name} if name else {}))
        for path, name in zip(paths, names or [""] * len(paths), strict=True)
    ]
    page = io.StringIO()
    Console(file=page, width=80).print(render_overview(found, unreadable or {}))
    return page.getvalue()


def test_runs_of_a_database_are_shown_by_their_name_where_they_have_one():
    text = printed([f"logs/mlflow.db#{'a' * 32}", f"logs/mlflow.db#{'b' * 32}"], ["grpo/first", ""])
    assert "mlflow.db#grpo/first" in text
    assert "a" * 32 not in text
    assert "mlflow.db#" + "b" * 8 in text


@pytest.mark.parametrize(
    ("paths", "folder"), [(["runs/a", "runs/b"], "runs"), (["a", "b"], ""), (["/a", "b"], ""), (["/a", "/b"], "")]
)
def test_the_folder_that_all_share_is_said_once(paths, folder):
    text = printed(paths)
    assert ("Runs in" in text) == bool(folder)
    for path in paths:
        assert path.removeprefix(f"{folder}/" if folder else "") in text


def test_an_unreadable_run_is_named_once():
    text = printed(["a"], unreadable={"b.log": "'b.log' is empty.", "c.log": "needs torch."})
    assert text.count("b.log") == 1
    assert "c.log: needs torch." in text
