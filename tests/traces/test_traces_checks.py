"""Every check finds its own sickness, and only a finding that names it counts."""

from __future__ import annotations

import random
from typing import Any

import pytest
from simulated import Sickness, sentence, traces

from foreshock.diagnosis import Diagnosis, diagnose_traces
from foreshock.rules.cause_names import ALL

LOOP = {"type": "function", "function": {"name": "search", "arguments": {"q": "again"}}}


def answer(row: dict[str, Any], text: str) -> None:
    row["messages"] = [*row["messages"][:-1], {"role": "assistant", "content": text}]


def failing_tools(row: dict[str, Any], rng: random.Random, progress: float) -> None:
    for message in row["messages"]:
        if message["role"] == "tool" and rng.random() < 0.8:
            message["content"] = "{'error': 'UnknownError: worker died'}"


def tools_that_begin_to_fail(row: dict[str, Any], rng: random.Random, progress: float) -> None:
    if progress > 0.6 and rng.random() < 0.6:
        failing_tools(row, rng, progress)


def loops(row: dict[str, Any], rng: random.Random, progress: float) -> None:
    if rng.random() < 0.3:
        pair = [{"role": "assistant", "content": "", "tool_calls": [LOOP]}, {"role": "tool", "content": "nothing"}]
        row["messages"] = [row["messages"][0], *pair * 3, row["messages"][-1]]


def repeats_without_a_loop(row: dict[str, Any], rng: random.Random, progress: float) -> None:
    for place, message in enumerate(row["messages"]):
        if message.get("tool_calls") and rng.random() < 0.9:
            message["tool_calls"] = [LOOP]
            row["messages"][place + 1]["content"] = sentence(rng, 8)


def broken_calls(row: dict[str, Any], rng: random.Random, progress: float) -> None:
    for message in row["messages"]:
        for call in message.get("tool_calls", ()):
            if rng.random() < 0.3:
                call["function"]["arguments"] = '{"q": "cut o'


def gives_up_tools(row: dict[str, Any], rng: random.Random, progress: float) -> None:
    if rng.random() < progress:
        row["messages"] = [row["messages"][0], row["messages"][-1]]


def grader_dies(row: dict[str, Any], rng: random.Random, progress: float) -> None:
    row["success"] = row["success"] and progress < 0.6


def never_succeeds(row: dict[str, Any], rng: random.Random, progress: float) -> None:
    row["success"] = False


def wall_clock(row: dict[str, Any], rng: random.Random, progress: float) -> None:
    if rng.random() < 0.4:
        row["termination"] = "timed out"


def step_limit(row: dict[str, Any], rng: random.Random, progress: float) -> None:
    row["termination"] = "max_turns"


def empty(row: dict[str, Any], rng: random.Random, progress: float) -> None:
    if rng.random() < 0.2:
        answer(row, "<think>so</think>\n")


def void(row: dict[str, Any], rng: random.Random, progress: float) -> None:
    pair = [{"role": "assistant", "content": " "}, {"role": "user", "content": "Go on."}]
    if rng.random() < 0.8:
        row["messages"] = [row["messages"][0], *pair, *row["messages"][1:]]


def gibberish(row: dict[str, Any], rng: random.Random, progress: float) -> None:
    if progress > 0.7 and rng.random() < 0.5:
        answer(row, sentence(rng, 30) + " so the so the so the" * 90)


def refusals(row: dict[str, Any], rng: random.Random, progress: float) -> None:
    if rng.random() < 0.5:
        answer(row, rng.choice(("I can’t help with that request.", "I'm sorry, but I am unable to assist with this.")))


def same_beginning(row: dict[str, Any], rng: random.Random, progress: float) -> None:
    if rng.random() < 0.8:
        answer(
            row,
            "Let me think about this carefully, as every detail of the task matters to me a great deal: " + "ok " * 9,
        )


def runaway(row: dict[str, Any], rng: random.Random, progress: float) -> None:
    if rng.random() < 0.03:
        row["total_tokens"] *= 200
        row["total_cost"] *= 200


def many_turns(row: dict[str, Any], rng: random.Random, progress: float) -> None:
    if rng.random() < 0.02:
        row["messages"] += [{"role": "assistant", "content": sentence(rng, 4)} for _ in range(500)]


def grows(row: dict[str, Any], rng: random.Random, progress: float) -> None:
    row["total_tokens"] = int(row["total_tokens"] * (1 + 2 * progress))


def pays_for_length(row: dict[str, Any], rng: random.Random, progress: float) -> None:
    row["reward"] = row["total_tokens"] / 1000 + rng.gauss(0, 0.1)


def capped_score_nothing(row: dict[str, Any], rng: random.Random, progress: float) -> None:
    row["total_tokens"] = min(row["total_tokens"], 1700)
    row["reward"] = 0.0 if row["total_tokens"] == 1700 else row["reward"]


SICK = [
    (failing_tools, "trace-tool-failures", "critical"),
    (tools_that_begin_to_fail, "trace-tool-failures", "warning"),
    (loops, "trace-loops", "warning"),
    (repeats_without_a_loop, "trace-repeated-arguments", "warning"),
    (broken_calls, "trace-parse-errors", "warning"),
    (gives_up_tools, "trace-tool-use", "warning"),
    (grader_dies, "trace-success", "critical"),
    (never_succeeds, "trace-success", "warning"),
    (wall_clock, "trace-termination", "critical"),
    (step_limit, "trace-termination", "critical"),
    (empty, "trace-empty-answers", "warning"),
    (void, "trace-void-turns", "warning"),
    (gibberish, "trace-repetition", "critical"),
    (refusals, "trace-refusals", "warning"),
    (same_beginning, "trace-same-beginning", "warning"),
    (runaway, "trace-token-runaway", "warning"),
    (runaway, "trace-cost-outliers", "warning"),
    (many_turns, "trace-turn-runaway", "warning"),
    (grows, "trace-growth", "warning"),
    (pays_for_length, "trace-verbosity", "warning"),
    (capped_score_nothing, "trace-capped-reward", "warning"),
]


@pytest.mark.parametrize(("sickness", "rule", "severity"), SICK, ids=lambda value: getattr(value, "__name__", value))
def test_each_sickness_is_found(sickness: Sickness, rule: str, severity: str) -> None:
    found = {finding.rule: finding for finding in diagnose_traces(traces(0, sickness, steps=30)).findings}
    assert rule in found, found
    finding = found[rule]
    assert (finding.severity, finding.steps[1]) == (severity, 30)
    assert finding.cause in ALL
    assert finding.evidence
    assert "s" in str(finding.evidence[0].get("examples", finding.evidence[0].get("episode")))


def test_a_dead_grader_points_to_the_environment() -> None:
    (finding,) = diagnose_traces(traces(1, grader_dies, steps=30)).findings
    assert finding.cause == "environment fault"
    assert "look at the environment" in finding.summary


def test_failures_are_listed_by_tool_and_kind() -> None:
    (finding, *_) = diagnose_traces(traces(0, failing_tools)).findings
    worst = finding.evidence[0]
    assert worst["error"] == "UnknownError"
    assert worst["tool"] in ("search", "read_file", "run_tests")
    assert 0 < worst["share"] <= 1


def test_a_cut_episode_that_is_labelled_success_is_shown() -> None:
    diagnosis = diagnose_traces(traces(0, wall_clock))
    row = next(row for row in diagnosis.findings[0].evidence if row["ended by"] == "wall clock")
    assert row["labelled success"] > 0


def without(*keys: str) -> Sickness:
    def strip(row: dict[str, Any], rng: random.Random, progress: float) -> None:
        for key in keys:
            del row[key]

    return strip


def gaps(diagnosis: Diagnosis) -> set[str]:
    return {gap.rule for gap in diagnosis.cannot_judge}


def test_a_rate_is_not_judged_without_labels() -> None:
    diagnosis = diagnose_traces(traces(0, without("success", "reward")))
    assert (diagnosis.verdict, gaps(diagnosis)) == ("cannot_judge", {"trace-success"})


def test_endings_are_not_judged_when_none_is_recorded() -> None:
    diagnosis = diagnose_traces(traces(0, without("termination")))
    assert (diagnosis.verdict, gaps(diagnosis)) == ("cannot_judge", {"trace-termination"})


def test_few_episodes_are_not_health() -> None:
    diagnosis = diagnose_traces(traces(0, steps=2, prompts=2))
    assert (diagnosis.verdict, gaps(diagnosis)) == ("cannot_judge", {"traces"})


def test_answers_in_another_script_are_not_judged_for_refusals() -> None:
    diagnosis = diagnose_traces(traces(0, lambda row, rng, progress: answer(row, "対象のファイルが見つかりました。")))
    assert gaps(diagnosis) == {"trace-refusals"}


def test_traces_without_steps_are_judged_by_their_level() -> None:
    def sick(row: dict[str, Any], rng: random.Random, progress: float) -> None:
        failing_tools(row, rng, progress)
        del row["step"]

    (finding, *_) = diagnose_traces(traces(0, sick)).findings
    assert (finding.rule, finding.steps) == ("trace-tool-failures", (0, 0))


def test_a_mean_reward_below_zero_that_falls_is_no_more_than_a_warning() -> None:
    def sick(row: dict[str, Any], rng: random.Random, progress: float) -> None:
        row["success"], row["reward"] = None, -1.0 - progress + rng.gauss(0, 0.1)

    (finding,) = diagnose_traces(traces(0, sick, steps=30)).findings
    assert (finding.rule, finding.severity) == ("trace-success", "warning")
    assert "mean reward" in finding.evidence[0]


def test_every_check_that_can_speak_is_described():
    """What the checks write as a rule's name has a page of its own."""
    import re
    from pathlib import Path

    from foreshock.traces import checks
    from foreshock.traces.checks import described

    written = {
        name
        for file in Path(checks.__file__).parent.glob("*.py")
        if file.name != "described.py"
        for name in re.findall(r'"(trace-[a-z-]+)"', file.read_text())
    }
    assert written - {"trace-tools"} == {check.ID for check in described.CHECKS}
