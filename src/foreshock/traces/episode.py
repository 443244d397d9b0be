"""What an agent did: episodes with their messages, tool calls and outcomes, wherever the trace came from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

FINISHED, WALL_CLOCK, STEP_LIMIT, CONTEXT, LENGTH, ERROR, UNFINISHED = (
    "finished", "wall clock", "step limit", "context", "length limit", "error", "unfinished",
)  # fmt: skip
"""Why an episode ended; any other word of a trace is kept as it is."""


@dataclass(frozen=True)
class ToolCall:
    """One call of a tool.

    ``arguments``: as called, usually a mapping; text when it was no JSON. ``result``: what the tool gave back, as
    text; None when the trace holds no answer. ``error``: the error that the answer tells of, "" when it tells none.
    """

    name: str
    arguments: Any
    result: str | None = None
    error: str = ""

    @cached_property
    def key(self) -> tuple[str, str]:
        """Name and arguments in one canonical form: equal exactly when the calls are the same."""
        try:
            return self.name, msgspec.json.encode(self.arguments, order="sorted").decode()
        except (TypeError, ValueError, OverflowError, RecursionError):
            return self.name, repr(self.arguments)


@dataclass(frozen=True)
class Episode:
    """One attempt at one task.

    ``prompt`` and ``response``: messages in the OpenAI form; the response also holds what the tools and the user said
    after it began. ``is_text``: the trace held plain text, one message each. ``group``: what is equal for attempts at
    the same prompt. ``success`` and ``reward``: labels, None when the trace has none. ``termination``: one of the
    words above, "" when unknown. ``step``: the optimizer step. ``tokens`` and ``cost``: of the whole episode.
    ``parse_errors``: calls that could not be parsed. ``tools``: the schemas that the policy was given. ``solution``:
    what a grader compares the answer with.
    """

    id: str
    prompt: Sequence[Mapping[str, Any]]
    response: Sequence[Mapping[str, Any]]
    calls: Sequence[ToolCall] = ()
    is_text: bool = False
    group: str = ""
    success: bool | None = None
    reward: float | None = None
    advantage: float | None = None
    termination: str = ""
    step: int | None = None
    tokens: int | None = None
    cost: float | None = None
    parse_errors: int = 0
    tools: Sequence[Any] = ()
    solution: Any = None

    @cached_property
    def turns(self) -> tuple[Mapping[str, Any], ...]:
        """The messages of the policy."""
        return tuple(message for message in self.response if message["role"] == "assistant")

    @cached_property
    def answer(self) -> str:
        """The text of the policy's last message, "" when it said nothing."""
        return self.turns[-1]["content"] if self.turns else ""


@dataclass(frozen=True)
class Traces:
    """The episodes of a file or folder, with its format and what was read but not used, by reason."""

    path: Path
    format: str
    episodes: Sequence[Episode]
    skipped: Counter[str] = field(default_factory=Counter)

    @cached_property
    def steps(self) -> tuple[int, int] | None:
        """The first and the last optimizer step; None unless every episode has one."""
        steps = [episode.step for episode in self.episodes if episode.step is not None]
        return (min(steps), max(steps)) if steps and len(steps) == len(self.episodes) else None

    @cached_property
    def thirds(self) -> tuple[list[Episode], ...]:
        """The episodes of the early, middle and late third of the distinct steps; empty for under three steps."""
        steps = sorted({episode.step or 0 for episode in self.episodes}) if self.steps else []
        if len(steps) < 3:
            return ()
        third = {step: 3 * place // len(steps) for place, step in enumerate(steps)}
        parts: tuple[list[Episode], ...] = ([], [], [])
        for episode in self.episodes:
            parts[third[episode.step or 0]].append(episode)
        return parts

    @cached_property
    def has_tokens(self) -> bool:
        """Whether every episode has its number of tokens."""
        return all(episode.tokens is not None for episode in self.episodes)

    def size(self, episode: Episode) -> int:
        """Return an episode's tokens where all episodes have them, else the characters of the policy's messages."""
        if self.has_tokens and episode.tokens is not None:
            return episode.tokens
        return sum(len(turn["content"]) for turn in episode.turns)
