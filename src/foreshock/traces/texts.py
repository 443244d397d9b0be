"""Measures of a text: how far it repeats itself, and how it begins."""

from __future__ import annotations

import zlib

WINDOW = 2000
"""Characters at the end of a text that are looked at: a text that falls into repetition stays there."""

SHORTEST = 400
"""Characters below which repetition is not judged."""

REPETITIVE = 8.0
"""Times that a repetitive text shrinks when compressed.

The largest of 1,583 windows of 2,000 characters of documentation and Python code was 6.3; a sentence said again with
another number in it gives 11, the same sentence 40 and more.
"""

BEGINNING = 80
"""Characters that count as the beginning of an answer."""


def compression_ratio(text: str) -> float:
    """Return bytes over compressed bytes (zlib) of the last :data:`WINDOW` characters; 1 for an empty text."""
    end = text[-WINDOW:].encode("utf-8", "replace")
    return len(end) / len(zlib.compress(end)) if end else 1.0


def is_repetitive(text: str) -> bool:
    """Say whether the end of a text repeats itself; False for one that is too short to tell."""
    return len(text) >= SHORTEST and compression_ratio(text) >= REPETITIVE


def beginning(text: str) -> str:
    """Return how a text begins, in single spaces and lower case; "" for one that is shorter than that."""
    words = " ".join(text[: 4 * BEGINNING].lower().split())
    return words[:BEGINNING] if len(words) >= BEGINNING else ""
