"""One row, one episode: chat messages, prompt and completion, or verl's input and output."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from foreshock.traces.chat import as_text, calls_of, is_messages, message
from foreshock.traces.episode import CONTEXT, ERROR, FINISHED, LENGTH, STEP_LIMIT, UNFINISHED, WALL_CLOCK, Episode

MESSAGES = ("messages", "conversation", "trajectory")
TEXTS = (("prompt", "completion"), ("input", "output"), ("prompt", "response"))
"""Keys of prompt and completion; the second pair is that of verl's ``rollout_data_dir``."""

IDS = ("episode_id", "id", "rollout_id", "trajectory_id", "uid", "request_id")
GROUPS = ("group", "group_id", "prompt_id", "task_id", "instance_id", "task")
STEPS = ("step", "global_step", "training_step")
REWARDS = ("reward", "score", "total_reward")
SUCCESSES = ("success", "resolved", "passed", "solved", "is_correct", "correct", "acc")
TERMINATIONS = ("termination", "termination_reason", "finish_reason", "stop_reason", "exit_status", "exit_reason")
TOKENS = ("total_tokens", "tokens", "num_tokens", "completion_tokens", "completion_length", "response_length")
SOLUTIONS = ("solution", "ground_truth", "gts", "expected")
COSTS = ("total_cost", "cost", "cost_usd")
INSIDE = ("metadata", "info", "metrics", "usage")
"""Objects of a row whose keys count as the row's own."""

_WORDS = (
    (WALL_CLOCK, r"wall.?clock|time.?out|timed.?out|time.?limit|deadline"),
    (CONTEXT, r"context"),
    (STEP_LIMIT, r"(max|limit).*(step|turn|iteration|call)|(step|turn|iteration|call)s?.*(limit|max|exceeded)"),
    (LENGTH, r"^length$|max.*(token|length)|(token|length).*(limit|cap)|truncat"),
    (ERROR, r"error|exception|crash|abort|fail(?!ed$)"),
    (UNFINISHED, r"unfinished|interrupted|cancel"),
    (
        FINISHED,
        r"^(stop|eos|done|end.*|finish.*|complete.*|submitted|success|answer.*|exit|tool_calls|env_done|failed)$",
    ),
)
_TERMINATIONS = tuple((cause, re.compile(words)) for cause, words in _WORDS)


def is_episode(row: Mapping[str, Any]) -> bool:
    """Say whether a row holds an episode: messages, or a prompt and what followed it."""
    return any(is_messages(row.get(key)) for key in MESSAGES) or _texts(row) is not None


def episode_of(row: Mapping[str, Any], place: str) -> Episode | None:
    """Make an episode of a row; ``place`` becomes its id where it has none. None when the row holds no episode."""
    spoken = _prompt_and_response(row)
    if spoken is None:
        return None
    prompt, response, is_text = spoken
    calls, parse_errors = calls_of(response)
    group = first_of(row, GROUPS)
    return Episode(
        id=as_text(first_of(row, IDS)) or place,
        prompt=prompt,
        response=response,
        calls=tuple(calls),
        is_text=is_text,
        group=as_text(prompt) if group is None else as_text(group),
        advantage=number(row.get("advantage")),
        parse_errors=parse_errors,
        tools=row["tools"] if isinstance(row.get("tools"), list) else (),
        **labels(row),
    )


def labels(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an episode that are read alike from every kind of row."""
    return {
        "success": truth(first_of(row, SUCCESSES)),
        "reward": number(first_of(row, REWARDS)),
        "termination": termination(row),
        "step": whole(first_of(row, STEPS)),
        "tokens": whole(first_of(row, TOKENS)),
        "cost": number(first_of(row, COSTS)),
        "solution": first_of(row, SOLUTIONS),
    }


def termination(row: Mapping[str, Any]) -> str:
    """Return why an episode ended, in the words of :mod:`foreshock.traces.episode`; "" when the row does not say."""
    word = as_text(first_of(row, TERMINATIONS))
    if not word.strip():
        return LENGTH if row.get("truncated") is True else ""
    word = word.strip().lower().replace("-", "_").replace(" ", "_")
    return next((cause for cause, words in _TERMINATIONS if words.search(word)), word)


def first_of(row: Mapping[str, Any], keys: tuple[str, ...]) -> Any:
    """Return the first value among keys that a row has, in itself or in an object such as its metadata."""
    for place in (row, *(row[name] for name in INSIDE if isinstance(row.get(name), Mapping))):
        for key in keys:
            if place.get(key) is not None:
                return place[key]
    return None


def number(value: Any) -> float | None:
    """Return a finite number, None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def whole(value: Any) -> int | None:
    """Return a whole number from 0 to 2⁵³, None for anything else."""
    found = number(value)
    return int(found) if found is not None and 0 <= found <= 2**53 and found == int(found) else None


def truth(value: Any) -> bool | None:
    """Return a label as a boolean: true, false, 1 or 0; None for anything else."""
    return bool(value) if isinstance(value, (bool, int, float)) and value in (0, 1) else None


def _prompt_and_response(row: Mapping[str, Any]) -> tuple[list[Any], list[Any], bool] | None:
    for key in MESSAGES:
        if is_messages(row.get(key)):
            messages = [message(raw) for raw in row[key]]
            first = next((i for i, part in enumerate(messages) if part["role"] == "assistant"), len(messages))
            return messages[:first], messages[first:], False
    texts = _texts(row)
    if texts is None:
        return None
    prompt, completion = texts
    if isinstance(prompt, str) and isinstance(completion, str):
        return [_said("user", prompt)], [_said("assistant", completion)], True
    return _messages(prompt, "user"), _messages(completion, "assistant"), False


def _texts(row: Mapping[str, Any]) -> tuple[Any, Any] | None:
    for first, second in TEXTS:
        prompt, completion = row.get(first), row.get(second)
        if _is_speech(prompt) and _is_speech(completion):
            return prompt, completion
    return None


def _is_speech(value: Any) -> bool:
    return isinstance(value, str) or value == [] or is_messages(value)


def _messages(value: Any, role: str) -> list[dict[str, Any]]:
    return [_said(role, value)] if isinstance(value, str) else [message(raw) for raw in value]


def _said(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": text}
