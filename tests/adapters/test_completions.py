"""The completions that a real GRPOTrainer writes are traces with every row, reward and tool call."""

import json

import pandas
import pytest
from datasets import load_dataset

from foreshock import diagnose
from foreshock.traces import read_traces
from foreshock.traces.completions import REPEATED
from foreshock.traces.export import write_dataset


@pytest.fixture
def completions(make_trainer, tmp_path):
    """Folder of a run that generates every second step, so that TRL logs each batch twice."""
    trainer = make_trainer(max_steps=4, log_completions=True, steps_per_generation=2, num_completions_to_print=0)
    trainer.train()
    return tmp_path / "trainer" / "completions"


def test_every_row_is_an_episode(completions):
    table = pandas.concat([pandas.read_parquet(path) for path in sorted(completions.iterdir())])
    traces = read_traces(completions)
    assert len(traces.episodes) + traces.skipped[REPEATED] == len(table)
    assert traces.skipped == {REPEATED: len(table) // 2}
    assert traces.steps == (1, 3)
    kept = table[table["step"].isin([1, 3])]
    assert [episode.reward for episode in traces.episodes] == list(kept["noisy_reward"])
    assert [len(episode.response) for episode in traces.episodes] == [len(said) for said in kept["completion"]]


def test_tool_calls_and_their_answers_are_read(completions):
    calls = [call for episode in read_traces(completions).episodes for call in episode.calls]
    assert calls
    assert {call.name for call in calls} == {"lookup"}
    assert all(set(call.arguments) == {"key"} for call in calls)
    assert any(call.result for call in calls)


def test_the_folder_is_diagnosed_as_it_is(completions):
    diagnosis = diagnose(completions)
    assert "trace-termination" in {gap.rule for gap in diagnosis.cannot_judge}
    assert diagnosis.skipped[REPEATED]


def test_pairs_come_from_groups_of_one_prompt(completions, tmp_path):
    rows, _ = write_dataset(read_traces(completions), "preference", tmp_path / "pairs.jsonl")
    data = load_dataset("json", data_files=str(tmp_path / "pairs.jsonl"), split="train", cache_dir=tmp_path / "cache")
    assert len(data) == rows > 0
    assert all(margin > 0 for margin in data["margin"])
    assert {tool["function"]["name"] for tool in json.loads(data[0]["tools"])} == {"lookup"}
