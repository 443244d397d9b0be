"""The log of traces: what it writes is what the reader reads, whatever ends the process."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from foreshock import TraceLog
from foreshock.errors import InputError
from foreshock.traces import read_traces


def divide(a: int, b: int) -> float:
    return a / b


def test_what_is_written_is_read(tmp_path: Path) -> None:
    tools = [{"type": "function", "function": {"name": "divide"}}]
    with TraceLog(tmp_path / "new" / "traces.jsonl") as log:
        with log.episode(prompt="Divide 1 by 2", step=3, group="g", tools=tools, metadata={"seed": 1}) as episode:
            episode.assistant("I divide.", tokens=5)
            assert episode.call_tool("divide", {"a": 1, "b": 2}, divide) == 0.5
            episode.parse_error("<tool_call>{")
            episode.assistant("0.5", tokens=1)
            episode.success, episode.reward, episode.cost = True, 0.5, 0.25
        log.flush()
    (read,) = read_traces(log.path).episodes
    assert (read.id, read.group, read.step, read.tools) == (episode.id, "g", 3, tools)
    assert (read.success, read.reward, read.cost, read.tokens) == (True, 0.5, 0.25, 6)
    assert (read.termination, read.parse_errors, read.answer) == ("finished", 1, "0.5")
    assert [(call.name, call.arguments, call.result) for call in read.calls] == [("divide", {"a": 1, "b": 2}, "0.5")]
    assert [part["content"] for part in read.prompt] == ["Divide 1 by 2"]


def test_an_error_is_written_and_goes_on(tmp_path: Path) -> None:
    log = TraceLog(tmp_path / "t")
    with pytest.raises(ZeroDivisionError), log.episode(prompt="p") as episode:
        episode.call_tool("divide", {"a": 1, "b": 0}, divide)
    with pytest.raises(TimeoutError), log.episode(prompt="p"):
        raise TimeoutError("30 s are over")
    with log.episode(prompt="p") as episode:
        episode.termination = "max_turns"
    log.close()
    first, second, third = read_traces(log.path).episodes
    assert first.calls[0].error == "ZeroDivisionError: division by zero"
    assert [e.termination for e in (first, second, third)] == ["error", "wall clock", "step limit"]


def test_what_json_does_not_know_is_written_as_text(tmp_path: Path) -> None:
    with TraceLog(tmp_path / "t") as log, log.episode(prompt="p") as episode:
        assert episode.call_tool("find", {"where": {1, 2}}, lambda where: tmp_path) == tmp_path
        episode.call_tool("odd", {"text": "half \ud83d"}, lambda text: {(1, 2): 3})
    (read,) = read_traces(tmp_path / "t").episodes
    assert str(tmp_path) in (read.calls[0].result or "")
    assert [call.name for call in read.calls] == ["find", "odd"]


def test_wrong_use_says_what_to_do(tmp_path: Path) -> None:
    with TraceLog(tmp_path / "t") as log, log.episode() as episode, pytest.raises(InputError, match="call_tool"):
        episode.message("tool", "x")
    with pytest.raises(InputError, match="is closed"):
        log.write({})
    log.close()


def test_a_torn_end_is_taken_up_on_a_new_line(tmp_path: Path) -> None:
    (tmp_path / "t").write_text('{"episode_id": "a", "ty')
    with TraceLog(tmp_path / "t") as log, log.episode(prompt="p") as episode:
        episode.assistant("x")
    traces = read_traces(tmp_path / "t")
    assert [episode.answer for episode in traces.episodes] == ["x"]
    assert traces.skipped == {"torn or damaged lines": 1}


def test_episodes_of_many_threads_stay_apart(tmp_path: Path) -> None:
    with TraceLog(tmp_path / "t") as log:

        def work(number: int) -> None:
            with log.episode(prompt=f"p{number}", episode_id=str(number)) as episode:
                for turn in range(20):
                    episode.assistant(f"{number}-{turn}" + "x" * 5000)

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(work, range(24)))
    traces = read_traces(tmp_path / "t")
    assert not traces.skipped
    for episode in traces.episodes:
        assert [turn["content"].rstrip("x") for turn in episode.turns] == [f"{episode.id}-{turn}" for turn in range(20)]


def test_a_kill_loses_nothing_that_was_written(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys, foreshock\n"
        "with foreshock.TraceLog(sys.argv[1]) as log, log.episode(prompt='p') as episode:\n"
        "    for turn in range(50): episode.assistant(str(turn))\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    path = tmp_path / "t"
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True)
        assert done.returncode == -signal.SIGKILL, done.stderr
    with TraceLog(path) as log, log.episode(prompt="p") as episode:
        episode.assistant("whole")
    traces = read_traces(path)
    assert [len(episode.turns) for episode in traces.episodes] == [50, 50, 1]
    assert [episode.termination for episode in traces.episodes] == ["unfinished", "unfinished", "finished"]
    assert all(json.loads(line)["type"] for line in path.read_text().splitlines())
