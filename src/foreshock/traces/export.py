"""Traces as data sets that ``datasets.load_dataset("json", …)`` and TRL's trainers take as they are.

Nothing is compared across prompts: a pair has one prompt, and a reward without a success label is good or bad only
against the mean of the attempts at its prompt.
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from foreshock.errors import InputError
from foreshock.traces.chat import as_text
from foreshock.traces.episode import ERROR, UNFINISHED, WALL_CLOCK, Episode, Traces

Row = dict[str, Any]
Rows = Iterator[Row]

NO_PROMPT, NO_RESPONSE = "episodes without a prompt", "episodes in which the policy says nothing"
CUT = "episodes that the environment cut off (wall clock, error, unfinished)"
REPEATED = "repetitions of a prompt with the same completion"
NO_LABEL = "episodes without a success label or reward"
ALONE = "prompts with one attempt only"
TIES = "pairs whose rewards do not differ by more than the margin"
NO_SIDE = "episodes whose reward is the mean of its prompt"
BAD = "episodes that did not succeed"
NO_JSON = "rows that are no valid JSON"

_KEYS = ("role", "content", "tool_calls", "tool_call_id", "name")
_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}


def write_dataset(traces: Traces, kind: str, output: Path, margin: float = 0.0) -> tuple[int, Counter[str]]:
    """Write a data set as JSONL, in one move; return the number of rows and what was left out, by reason.

    ``kind``: a key of :data:`KINDS`. ``margin``: the rewards of a preference pair differ by more than this.

    Raises:
        InputError: the kind is unknown, or no row is left.
        OSError: the file cannot be written.
    """
    if kind not in KINDS:
        raise InputError(f"Got the kind {kind!r} of a data set. Expected one of: {', '.join(KINDS)}.")
    left_out: Counter[str] = Counter()
    draft, count = output.with_name(f".{output.name}.tmp"), 0
    try:
        with open(draft, "wb") as file:
            for row in KINDS[kind](traces, margin, left_out):
                try:
                    file.write(msgspec.json.encode(row) + b"\n")
                    count += 1
                except (TypeError, ValueError, OverflowError, RecursionError):
                    left_out[NO_JSON] += 1
        if not count:
            reasons = "; ".join(f"{reason}: {number}" for reason, number in left_out.items())
            raise InputError(
                f"No row is left for a {kind} data set of {str(traces.path)!r} ({reasons or 'no episode'})."
            )
        os.replace(draft, output)
    finally:
        draft.unlink(missing_ok=True)
    return count, left_out


def _preference(traces: Traces, margin: float, left_out: Counter[str]) -> Rows:
    """Pair the best attempt at a prompt with the worst, the second best with the second worst, and so on."""
    for group in _by_prompt(traces, left_out).values():
        ranked = sorted(_scored(group, left_out), key=lambda pair: -pair[0])
        if len(ranked) == 1:
            left_out[ALONE] += 1
        for (high, chosen), (low, rejected) in zip(ranked[: len(ranked) // 2], reversed(ranked), strict=False):
            if high - low <= margin:
                left_out[TIES] += 1
                continue
            yield {
                "prompt": chosen["prompt"],
                "chosen": chosen["completion"],
                "rejected": rejected["completion"],
                "margin": high - low,
                **_tools(chosen),
            }


def _kto(traces: Traces, margin: float, left_out: Counter[str]) -> Rows:
    for row, label in _labelled(traces, left_out):
        yield {"prompt": row["prompt"], "completion": row["completion"], "label": label, **_tools(row)}


def _sft(traces: Traces, margin: float, left_out: Counter[str]) -> Rows:
    for row, label in _labelled(traces, left_out):
        if label:
            yield {"prompt": row["prompt"], "completion": row["completion"], **_tools(row)}
        else:
            left_out[BAD] += 1


def _grpo(traces: Traces, margin: float, left_out: Counter[str]) -> Rows:
    for group in _by_prompt(traces, left_out, only_prompts=True).values():
        episode, row = group[0]
        yield {"prompt": row["prompt"], **({} if episode.solution is None else {"solution": episode.solution})}


KINDS: Mapping[str, Callable[[Traces, float, Counter[str]], Rows]] = {
    "preference": _preference,
    "kto": _kto,
    "sft": _sft,
    "grpo": _grpo,
}
"""What can be written: for DPO and reward models, for KTO, for SFT on successes, and the prompts for GRPO."""


def _by_prompt(
    traces: Traces, left_out: Counter[str], *, only_prompts: bool = False
) -> dict[str, list[tuple[Episode, Row]]]:
    """Return the usable episodes with their rows by prompt, each prompt and completion once."""
    groups: dict[str, list[tuple[Episode, Row]]] = defaultdict(list)
    seen: set[tuple[str, str]] = set()
    is_text = all(episode.is_text for episode in traces.episodes)
    tools = _schemas(traces)
    for episode in traces.episodes:
        if reason := _unusable(episode, only_prompts):
            left_out[reason] += 1
            continue
        row: Row = {"prompt": _spoken(episode.prompt, is_text), "completion": _spoken(episode.response, is_text)}
        key = as_text(row["prompt"]), "" if only_prompts else as_text(row["completion"])
        if key in seen:
            left_out[REPEATED] += not only_prompts
            continue
        seen.add(key)
        if tools and not is_text:
            row["tools"] = json.dumps(episode.tools or tools, default=str)
        groups[key[0]].append((episode, row))
    return groups


def _unusable(episode: Episode, only_prompts: bool) -> str:
    if not any(part["content"] for part in episode.prompt):
        return NO_PROMPT
    if only_prompts:
        return ""
    if episode.termination in (WALL_CLOCK, ERROR, UNFINISHED):
        return CUT
    return "" if any(turn["content"] or turn.get("tool_calls") for turn in episode.turns) else NO_RESPONSE


def _score(episode: Episode) -> float | None:
    return episode.reward if episode.reward is not None or episode.success is None else float(episode.success)


def _scored(group: Sequence[tuple[Episode, Row]], left_out: Counter[str]) -> list[tuple[float, Row]]:
    scored = [(score, row) for episode, row in group if (score := _score(episode)) is not None]
    left_out[NO_LABEL] += len(group) - len(scored)
    return scored


def _labelled(traces: Traces, left_out: Counter[str]) -> Iterator[tuple[Row, bool]]:
    """Yield rows with whether they are good: as labelled, else by the mean reward of the attempts at the prompt."""
    groups = _by_prompt(traces, left_out)
    rewards = {episode.reward for group in groups.values() for episode, _ in group} - {None}
    is_binary = rewards <= {0.0, 1.0}
    for group in groups.values():
        scores = [score for score, _ in _scored(group, left_out)]
        mean = 0.5 if is_binary else math.fsum(scores) / max(len(scores), 1)
        for episode, row in group:
            score = _score(episode)
            if episode.success is not None:
                yield row, episode.success
            elif score is not None and math.isclose(score, mean):
                left_out[NO_SIDE] += 1
            elif score is not None:
                yield row, score > mean


def _spoken(messages: Sequence[Mapping[str, Any]], is_text: bool) -> Any:
    if is_text:
        return "".join(message["content"] for message in messages)
    return [{key: message[key] for key in _KEYS if key in message} for message in messages]


def _tools(row: Row) -> Row:
    return {"tools": row["tools"]} if "tools" in row else {}


def _schemas(traces: Traces) -> list[Any]:
    """Return schemas of all tools: those that the traces hold, and what the calls show of the others."""
    schemas = {json.dumps(tool, sort_keys=True, default=str): tool for e in traces.episodes for tool in e.tools}
    named = {_name(tool) for tool in schemas.values()}
    seen: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for episode in traces.episodes:
        for call in episode.calls:
            if call.name and call.name not in named and isinstance(call.arguments, Mapping):
                seen[call.name].append(call.arguments)
    return [*schemas.values(), *(_schema(name, calls) for name, calls in sorted(seen.items()))]


def _name(tool: Any) -> str:
    function = tool.get("function", tool) if isinstance(tool, Mapping) else {}
    return as_text(function.get("name")) if isinstance(function, Mapping) else ""


def _schema(name: str, calls: Sequence[Mapping[str, Any]]) -> Row:
    """Return the schema that the calls of a tool show: its parameters, their types, and which were always given."""
    keys = sorted({key for call in calls for key in call})
    properties = {key: _parameter([call[key] for call in calls if key in call]) for key in keys}
    required = [key for key in keys if all(key in call for call in calls)]
    parameters = {"type": "object", "properties": properties, "required": required}
    return {"type": "function", "function": {"name": name, "description": "", "parameters": parameters}}


def _parameter(values: Sequence[Any]) -> Row:
    types = sorted({_TYPES.get(type(value), "string") for value in values})
    return {"type": types[0] if len(types) == 1 else types}
