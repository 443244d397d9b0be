from __future__ import annotations

import json
import re
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
import rollout_dumps as dumps
from click.testing import CliRunner

from foreshock.audit import CHECKS
from foreshock.cli import main


@pytest.mark.parametrize("write", [dumps.nemo_rl, dumps.prime_rl, dumps.slime, dumps.skyrl])
def test_healthy_dumps_of_every_trainer_pass(tmp_path: Path, healthy, write) -> None:
    result = CliRunner().invoke(main, ["audit", str(write(tmp_path, healthy)), "--json"])
    (found,) = json.loads(result.output)["runs"]
    assert (found["verdict"], found["findings"], found["cannot_judge"]) == ("healthy", [], [])
    assert result.exit_code == 0


def test_values_that_are_not_finite_are_named(tmp_path: Path, healthy) -> None:
    healthy[4][0].old[0] = float("nan")
    result = CliRunner().invoke(main, ["audit", str(dumps.nemo_rl(tmp_path, healthy))])
    assert "old log-probabilities had the first non-finite value, at step 5" in result.output
    assert result.exit_code == 1


def test_steps_that_lie_far_apart_cost_nothing(tmp_path: Path, healthy) -> None:
    folder = dumps.nemo_rl(tmp_path, healthy)
    (folder / "train_data_step6.jsonl").rename(folder / "train_data_step202611300000.jsonl")
    assert CliRunner().invoke(main, ["audit", str(folder)]).exit_code == 0


def test_samples_that_several_workers_wrote_are_counted_once(tmp_path: Path, healthy) -> None:
    result = CliRunner().invoke(main, ["audit", str(dumps.slime(tmp_path, healthy)), "--json"])
    (found,) = json.loads(result.output)["runs"]
    assert found["skipped"] == {"files that repeat the samples of another worker": 6}


def test_completions_of_trl_are_judged_by_roles_and_groups(tmp_path: Path) -> None:
    columns = {
        "step": [1] * 4,
        "prompt": [[{"role": "user", "content": "a"}]] * 4,
        "completion": [[{"role": "assistant", "content": str(row)}] for row in range(4)],
        "reward": [0.0, 1.0, 0.0, 1.0],
        "advantage": [-1.0, 1.0, -1.0, 1.0],
    }
    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "completions_00001.parquet")
    result = CliRunner().invoke(main, ["audit", str(tmp_path)])
    assert result.exit_code == 3, result.output
    assert "no token ids" in result.output


def test_what_is_neither_is_refused_with_the_known_formats(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing")
    result = CliRunner().invoke(main, ["audit", str(tmp_path)])
    assert result.exit_code == 2
    assert "holds no token dump. Expected one of: prime-rl token export" in result.output


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.ID)
def test_every_check_is_documented_as_rules_are(check) -> None:
    title, _, body = check.__doc__.partition("\n\n")
    assert re.fullmatch(r"[A-Z][^:\n]+: [^\n]+\.", title)
    sections = re.findall(r"^([A-Z][A-Za-z ]+):(?=\s+\S)", body, re.MULTILINE)
    assert CliRunner().invoke(main, ["explain", check.ID]).exit_code == 0
    assert sections == ["What", "Why it matters", "Known problems", "Example", "Options", "References"]
