"""Readers: what each format becomes, and what is counted."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from foreshock.cli import main
from foreshock.errors import MissingExtra, ReadError
from foreshock.traces import Episode, is_traces, read_traces
from foreshock.traces.checks import check
from foreshock.traces.completions import NO_SUM, REPEATED
from foreshock.traces.events import OTHER
from foreshock.traces.read import NO_EPISODE

Jsonl = Callable[..., Path]

EVENTS = [
    {"episode_id": "a", "step": 0, "type": "user_message", "content": "Book a room"},
    {"episode_id": "a", "step": 1, "type": "assistant_message", "content": "I look.", "tokens": 4},
    {"episode_id": "b", "step": 0, "type": "user_message", "content": "Hello"},
    {"episode_id": "a", "step": 2, "type": "tool_call", "tool": "search", "args": {"q": "room"}, "tokens": 6},
    {"episode_id": "a", "step": 3, "type": "tool_call", "tool": "price", "args": {"q": "room"}},
    {"episode_id": "a", "step": 4, "type": "tool_result", "tool": "search", "result": None, "error": "quota used up"},
    {"episode_id": "a", "step": 5, "type": "tool_result", "tool": "price", "result": "12"},
    {"episode_id": "a", "step": 6, "type": "tool_parse_error", "content": "<call>"},
    {"episode_id": "a", "step": 7, "type": "episode_end", "success": False, "reward": 0.0, "total_cost": 0.5},
    {"episode_id": "b", "step": 1, "type": "assistant_message", "content": "Hi"},
]

CHAT = {
    "id": 7,
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Add 1 and 2"}, {"type": "image_url", "image_url": {}}]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "x", "type": "function", "function": {"name": "add", "arguments": '{"a": 1, "b": 2}'}},
                {"id": "y", "type": "function", "function": {"name": "add", "arguments": "{'a': 1,"}},
            ],
        },
        {"role": "tool", "tool_call_id": "y", "content": "TypeError: missing b"},
        {"role": "tool", "tool_call_id": "x", "content": "3"},
        {"role": "assistant", "content": "3"},
    ],
    "metadata": {"resolved": 1, "global_step": 12},
    "usage": {"total_tokens": 99},
    "finish_reason": "length",
}

VERL = {
    "input": "user\nWhat?\nassistant\n",
    "output": (
        '<tool_call>\n{"name": "run", "arguments": {"code": "1/0"}}\n</tool_call>\nuser\n<tool_response>\n'
        "ZeroDivisionError: division by zero\n</tool_response>\nassistant\n<tool_call>{oh</tool_call>It fails."
    ),
    "gts": "2",
    "score": 0.5,
    "acc": True,
    "step": 3,
}


def only(path: Path) -> Episode:
    (episode,) = read_traces(path).episodes
    return episode


def test_events_may_come_interleaved(jsonl: Jsonl) -> None:
    traces = read_traces(jsonl(EVENTS))
    first, second = traces.episodes
    assert (traces.format, traces.skipped, traces.steps) == ("one event a line", {}, None)
    assert [part["role"] for part in first.prompt] == ["user"]
    assert [(c.name, c.arguments, c.result, c.error) for c in first.calls] == [
        ("search", {"q": "room"}, "quota used up", "quota used up"),
        ("price", {"q": "room"}, "12", ""),
    ]
    assert (first.success, first.reward, first.cost, first.tokens, first.parse_errors) == (False, 0.0, 0.5, 10, 1)
    assert (first.termination, second.termination, second.answer) == ("", "unfinished", "Hi")


def test_calls_in_succession_belong_to_one_message(jsonl: Jsonl) -> None:
    first = read_traces(jsonl(EVENTS)).episodes[0]
    assert [len(turn.get("tool_calls", ())) for turn in first.turns] == [2, 0]


def test_an_id_that_is_used_again_is_another_episode(jsonl: Jsonl) -> None:
    traces = read_traces(jsonl([*EVENTS, *EVENTS]))
    assert [episode.id for episode in traces.episodes] == ["a", "b", "a"]
    assert len(traces.episodes[1].turns) == 2


def test_what_is_no_event_is_counted(jsonl: Jsonl) -> None:
    path = jsonl([*EVENTS, {"episode_id": "a", "type": "heartbeat"}, {"loss": 1}])
    path.write_text(path.read_text() + '{"episode_id": "a", "ty')
    assert read_traces(path).skipped == {OTHER: 1, NO_EPISODE: 1, "torn or damaged lines": 1}


def test_chat_messages_with_calls(jsonl: Jsonl) -> None:
    episode = only(jsonl([CHAT]))
    assert (episode.id, episode.success, episode.step, episode.tokens) == ("7", True, 12, 99)
    assert episode.termination == "length limit"
    assert [part["content"] for part in episode.prompt] == ["Be brief.", "Add 1 and 2[image_url]"]
    assert [(c.arguments, c.result, c.error) for c in episode.calls] == [
        ({"a": 1, "b": 2}, "3", ""),
        ("{'a': 1,", "TypeError: missing b", "TypeError: missing b"),
    ]
    assert episode.parse_errors == 1


def test_the_rollouts_of_verl(jsonl: Jsonl, tmp_path: Path) -> None:
    for step in (9, 10):
        jsonl([{**VERL, "step": step}], f"rollouts/{step}.jsonl")
    traces = read_traces(tmp_path / "rollouts")
    assert [episode.step for episode in traces.episodes] == [9, 10]
    episode = traces.episodes[0]
    assert (episode.is_text, episode.reward, episode.success, episode.parse_errors) == (True, 0.5, True, 1)
    (call,) = episode.calls
    assert (call.name, call.error) == ("run", "ZeroDivisionError: division by zero")


@pytest.mark.parametrize(
    ("word", "cause"),
    [
        ("timeout", "wall clock"), ("Wall-clock limit", "wall clock"), ("max_turns", "step limit"),
        ("max steps exceeded", "step limit"), ("context_length_exceeded", "context"), ("max_tokens", "length limit"),
        ("environment error", "error"), ("stop", "finished"), ("end_turn", "finished"), ("moonlight", "moonlight"),
    ],
)  # fmt: skip
def test_words_for_the_end(jsonl: Jsonl, word: str, cause: str) -> None:
    assert only(jsonl([{**VERL, "stop_reason": word}])).termination == cause


def completions(folder: Path, step: int, rows: list[dict[str, Any]]) -> None:
    folder.mkdir(exist_ok=True)
    pandas.DataFrame([{"step": step, **row} for row in rows]).to_parquet(folder / f"completions_{step:05d}.parquet")


def test_rewards_are_the_columns_that_agree_with_the_advantage(tmp_path: Path) -> None:
    rows = [
        {"prompt": "p", "completion": "x", "right": 1.0, "short": 0.5, "advantage": 1.0},
        {"prompt": "p", "completion": "y", "right": 0.0, "short": 0.75, "advantage": -1.0},
    ]
    completions(tmp_path / "c", 1, rows)
    assert [episode.reward for episode in read_traces(tmp_path / "c").episodes] == [1.5, 0.75]
    completions(tmp_path / "c", 1, [{**row, "extra": -9.0 * row["right"]} for row in rows])
    assert [episode.reward for episode in read_traces(tmp_path / "c").episodes] == [1.0, 0.0]
    completions(tmp_path / "c", 1, [{**row, "right": -row["right"]} for row in rows])
    traces = read_traces(tmp_path / "c")
    assert [episode.reward for episode in traces.episodes] == [None, None]
    assert traces.skipped == {NO_SUM: 2}


def test_a_prompt_that_was_drawn_twice_makes_two_groups(tmp_path: Path) -> None:
    drawn = [("p", 0.9, 1.0), ("p", 0.8, -1.0), ("p", 0.2, 1.0), ("p", 0.1, -1.0), ("q", 0.1, -1.0), ("q", 0.3, 1.0)]
    rows = [{"prompt": p, "completion": str(r), "good": r, "advantage": a} for p, r, a in drawn]
    completions(tmp_path / "c", 1, rows)
    assert [episode.reward for episode in read_traces(tmp_path / "c").episodes] == [0.9, 0.8, 0.2, 0.1, 0.1, 0.3]


def test_a_batch_that_is_logged_again_counts_once(tmp_path: Path) -> None:
    rows = [{"prompt": "p", "completion": text, "r": 0.0, "advantage": 0.0} for text in "xy"]
    for step in (1, 2, 3):
        completions(tmp_path / "c", step, rows if step < 3 else rows[:1])
    traces = read_traces(tmp_path / "c")
    assert [episode.step for episode in traces.episodes] == [1, 1, 3]
    assert traces.skipped == {REPEATED: 2}


def test_metrics_and_runs_are_no_traces(jsonl: Jsonl, tmp_path: Path) -> None:
    assert not is_traces(jsonl([{"step": 1, "loss": 0.1}]))
    assert not is_traces(tmp_path / "missing")
    assert not is_traces("\0")
    jsonl([CHAT], "run/rollouts.jsonl")
    assert is_traces(tmp_path / "run")
    (tmp_path / "run" / "run.json").write_text("{}")
    assert not is_traces(tmp_path / "run")
    with pytest.raises(ReadError, match="holds no traces"):
        read_traces(tmp_path / "run")


def test_a_first_line_longer_than_the_first_look(jsonl: Jsonl) -> None:
    long = {"messages": [{"role": "user", "content": "x" * 200_000}, {"role": "assistant", "content": "y"}]}
    assert len(read_traces(jsonl([long, long])).episodes) == 2


def test_a_damaged_table_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "c.parquet").write_bytes(b"PAR1" + bytes(50))
    with pytest.raises(ReadError, match="damaged parquet"):
        is_traces(tmp_path / "c.parquet")


def test_a_table_without_pyarrow_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    completions(tmp_path, 1, [{"prompt": "p", "completion": "x"}])
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(MissingExtra, match=r"foreshock\[parquet\]"):
        is_traces(tmp_path)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@st.composite
def mutated(draw: st.DrawFn) -> list[Any]:
    """Draw lines of every kind of row, with values exchanged for anything at any depth."""

    def change(value: Any) -> Any:
        if draw(st.integers(0, 9)) == 0:
            return draw(JSON_VALUES)
        if isinstance(value, dict):
            return {key: change(inner) for key, inner in value.items()}
        return [change(inner) for inner in value] if isinstance(value, list) else value

    return [change(row) for row in (*EVENTS, CHAT, VERL)]


@settings(max_examples=30)
@given(rows=mutated())
def test_mutated_rows_are_read_or_counted(rows: list[Any], tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "log"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    if is_traces(path):
        check(read_traces(path))


@given(start=st.sampled_from([b"", b"PAR1", json.dumps(EVENTS[0]).encode() + b"\n"]), content=st.binary(max_size=200))
def test_random_bytes_are_read_or_refused(
    start: bytes, content: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "log"
    path.write_bytes(start + content)
    try:
        check(read_traces(path))
    except ReadError:
        assert not start.startswith(b"{")


def test_inspect_says_what_was_read(jsonl: Jsonl) -> None:
    result = CliRunner().invoke(main, ["inspect", "--json", str(jsonl([*EVENTS, {"loss": 1}]))])
    found = json.loads(result.output)
    assert (found["format"], found["rows"], found["steps"]) == ("one event a line", 2, None)
    assert {name: facts["values"] for name, facts in found["keys"].items()} == {
        "success": 1, "reward": 1, "termination": 1, "tokens": 1, "cost": 1, "turns": 3, "calls": 2,
    }  # fmt: skip
    assert found["skipped"] == {NO_EPISODE: 1}


def test_diagnose_finds_traces_by_their_content(jsonl: Jsonl) -> None:
    result = CliRunner().invoke(main, ["diagnose", "--json", str(jsonl([VERL] * 30))])
    (found,) = json.loads(result.output)["runs"]
    assert (result.exit_code, found["verdict"]) == (1, "critical")
    assert found["findings"][0]["rule"] == "trace-tool-failures"


def test_a_report_of_traces_is_refused(jsonl: Jsonl) -> None:
    result = CliRunner().invoke(main, ["report", str(jsonl([CHAT]))])
    assert (result.exit_code, "Use: foreshock diagnose" in result.output) == (2, True)
