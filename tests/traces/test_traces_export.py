"""Data sets from traces: what goes into them, and that the real ``datasets`` and TRL take them as they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from simulated import rows as simulated_rows

from foreshock.cli import main
from foreshock.errors import InputError
from foreshock.traces import export, read_traces


def attempt(prompt: str, answer: str, reward: float | None, **more: Any) -> dict[str, Any]:
    return {"prompt": prompt, "completion": answer, "reward": reward, **more}


def written(folder: Path, rows: list[dict[str, Any]], kind: str, margin: float = 0.0) -> tuple[list[Any], Any]:
    (folder / "traces").write_text("".join(json.dumps(row) + "\n" for row in rows))
    _, left_out = export.write_dataset(read_traces(folder / "traces"), kind, folder / "out", margin)
    return [json.loads(line) for line in (folder / "out").read_text().splitlines()], +left_out


def test_pairs_have_one_prompt_and_differ_in_reward(tmp_path: Path) -> None:
    rows = [
        attempt("p", "best", 1.0), attempt("p", "worst", 0.0), attempt("p", "good", 0.6), attempt("p", "fair", 0.5),
        attempt("q", "same", 0.3), attempt("q", "too", 0.3), attempt("r", "alone", 1.0), attempt("p", "best", 1.0),
        attempt("p", "?", None), attempt("p", "cut", 0.0, termination="timeout"), attempt("", "x", 1.0),
    ]  # fmt: skip
    found, left_out = written(tmp_path, rows, "preference")
    assert [(row["prompt"], row["chosen"], row["rejected"]) for row in found] == [
        ("p", "best", "worst"),
        ("p", "good", "fair"),
    ]
    assert left_out == {
        export.TIES: 1, export.ALONE: 1, export.REPEATED: 1, export.NO_LABEL: 1, export.CUT: 1, export.NO_PROMPT: 1,
    }  # fmt: skip
    found, left_out = written(tmp_path, rows, "preference", margin=0.2)
    assert [row["margin"] for row in found] == [1.0]
    assert left_out[export.TIES] == 2


def test_labels_are_those_of_the_trace_or_against_the_mean_of_the_prompt(tmp_path: Path) -> None:
    graded = [attempt("p", "a", 0.1), attempt("p", "b", 0.5), attempt("q", "c", 0.5), attempt("q", "d", 0.9)]
    found, _ = written(tmp_path, graded, "kto")
    assert {row["completion"]: row["label"] for row in found} == {"a": False, "b": True, "c": False, "d": True}
    found, left_out = written(tmp_path, [attempt("p", "a", 0.5), *graded[2:]], "kto")
    assert ([row["completion"] for row in found], left_out) == (["c", "d"], {export.NO_SIDE: 1})
    found, _ = written(tmp_path, [attempt("p", "a", 1.0), attempt("p", "b", 1.0), attempt("q", "c", 0.0)], "kto")
    assert [row["label"] for row in found] == [True, True, False]
    found, _ = written(tmp_path, [attempt("p", "a", 0.9, success=False), attempt("p", "b", 0.1, success=True)], "sft")
    assert [row["completion"] for row in found] == ["b"]


def test_prompts_come_once_with_what_the_grader_needs(tmp_path: Path) -> None:
    rows = [attempt("p", "a", 0.0, gts="7"), attempt("p", "b", 1.0, gts="7"), attempt("q", "c", None, gts="8")]
    found, left_out = written(tmp_path, rows, "grpo")
    assert (found, left_out) == ([{"prompt": "p", "solution": "7"}, {"prompt": "q", "solution": "8"}], {})


def test_nothing_left_is_an_error_that_says_why(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"prompts with one attempt only: 1"):
        written(tmp_path, [attempt("p", "a", 1.0)], "preference")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["traces"]


def test_schemas_of_tools_are_given_or_seen_from_the_calls(tmp_path: Path) -> None:
    found, _ = written(tmp_path, simulated_rows(0, steps=3), "kto")
    schemas = {tool["function"]["name"]: tool["function"]["parameters"] for tool in json.loads(found[0]["tools"])}
    assert schemas["search"] == {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}
    given = [{"type": "function", "function": {"name": name, "parameters": {}}} for name in schemas]
    found, _ = written(tmp_path, [{**row, "tools": given} for row in simulated_rows(0, steps=3)], "kto")
    assert json.loads(found[0]["tools"]) == given


@pytest.mark.parametrize("kind", list(export.KINDS))
def test_the_command_writes_what_the_function_writes(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "traces"
    path.write_text("".join(json.dumps(row) + "\n" for row in simulated_rows(1, steps=3)))
    result = CliRunner().invoke(main, ["dataset", str(path), "--kind", kind, "--output", str(tmp_path / "out.jsonl")])
    assert result.exit_code == 0, result.output
    count = len((tmp_path / "out.jsonl").read_text().splitlines())
    assert f"{count} rows from 48 episodes" in result.output


def test_what_holds_no_traces_is_exit_code_2(tmp_path: Path) -> None:
    (tmp_path / "log").write_text('{"step": 1, "loss": 0.5}\n')
    result = CliRunner().invoke(main, ["dataset", str(tmp_path / "log"), "--kind", "sft", "--output", "x"])
    assert result.exit_code == 2
    assert "holds no traces" in result.output
