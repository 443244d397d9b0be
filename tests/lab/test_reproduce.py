"""The command, on a sweep whose runs have finished: what it reads, writes and says."""

from __future__ import annotations

import pytest

pytest.importorskip("trl")
pytest.importorskip("matplotlib")

from click.testing import CliRunner

from foreshock.cli import main
from foreshock.lab import sweep


@pytest.fixture
def call(tmp_path):
    runner = CliRunner()
    environment = {"NO_COLOR": "1", "COLUMNS": "200"}
    return lambda *arguments: runner.invoke(main, ["reproduce", "--output", str(tmp_path), *arguments], env=environment)


def test_finished_runs_are_drawn_without_training(call, tmp_path, write_run):
    for plan in sweep.plans("tiny", ["fixed", "constrained"], [0, 1], 60, tmp_path):
        write_run(plan, growth=1.0)
    result = call("--arms", "fixed,constrained", "--seeds", "0-1", "--steps", "60")
    assert result.exit_code == 0, result.output
    assert "4 have finished, 0 to train" in result.output
    for name in ("index.html", "tables.md", "results.json", "figure-1.png", "figure-2.svg", "figure-3.png"):
        assert (tmp_path / name).stat().st_size > 500


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--seeds", "3-1"), "not a list of seeds"),
        (("--seeds", "x"), "not a list of seeds"),
        (("--arms", "fixed,loose"), "unknown arm for tiny: got 'loose'"),
        (("--model", "smollm2", "--full"), "unknown arm for smollm2"),
    ],
)
def test_wrong_use_is_exit_code_2_before_anything_is_trained(call, tmp_path, arguments, said):
    result = call(*arguments)
    assert result.exit_code == 2
    assert said in result.output
    assert not list(tmp_path.iterdir())


def test_runs_of_another_length_are_refused(call, tmp_path, write_run):
    write_run(sweep.plans("tiny", ["fixed"], [0], 60, tmp_path)[0])
    result = call("--arms", "fixed", "--seeds", "0", "--steps", "66")
    assert result.exit_code == 2
    assert "60 steps" in result.output
