"""Loops: the same calls, with the same arguments and the same answers, over and over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from foreshock.traces.episode import ToolCall

REPEATS = 3
"""Times in direct succession that make a loop."""

LONGEST_CYCLE = 4
"""Calls of the longest cycle that is looked for: A, B, C, D, A, B, C, D, A, B, C, D."""


def loop_in(calls: Sequence[ToolCall]) -> tuple[ToolCall, ...]:
    """Return the calls of the first cycle that is repeated :data:`REPEATS` times, with equal arguments and answers.

    Asking again until the answer changes is no loop, and neither is A, B, A, C.
    """
    keys = [(call.key, call.result) for call in calls]
    for start in range(len(keys)):
        for length in range(1, LONGEST_CYCLE + 1):
            if _repeats(keys, start, length):
                return tuple(calls[start : start + length])
    return ()


def repeated(calls: Sequence[ToolCall]) -> int:
    """Return how many calls repeat an earlier call of the episode; calls without arguments do not count."""
    seen: set[Any] = set()
    again = 0
    for call in calls:
        if call.arguments:
            again += call.key in seen
            seen.add(call.key)
    return again


def _repeats(keys: Sequence[Any], start: int, length: int) -> bool:
    end = start + REPEATS * length
    return end <= len(keys) and all(keys[i] == keys[i + length] for i in range(start, end - length))
