"""Which tokens make a tail: a sentence and a table from the largest tokens of some blocks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from foreshock.run import Block, TopToken

SHOWN = 5
"""Rows of the table."""

LONGEST_TEXT = 20
"""Characters of a token's text that are shown."""

WORTH_SAYING = 0.3
"""Share of the excess from which on a single kind of token is named in a sentence (heuristic)."""


def largest_tokens(blocks: Iterable[Block], slice_name: str, above: float) -> list[tuple[TopToken, float]]:
    """Return the kept tokens of a slice and by how many nats each |log-ratio| exceeds ``above``, where it does."""
    tokens = [token for block in blocks for token in block.top.get(slice_name, ())]
    return [(token, abs(token.log_ratio) - above) for token in tokens if abs(token.log_ratio) > above]


def attribution_sentence(found: Sequence[tuple[TopToken, float]]) -> str:
    """Say which one kind of token has most of the excess: a token, or a place in the turn; "" when none stands out."""
    if not found:
        return ""
    total = sum(excess for _, excess in found)
    kinds = [
        (share, words)
        for describe in (_by_token, _by_place)
        for words, share in _shares(found, describe, total).items()
        if share >= WORTH_SAYING
    ]
    named = sorted(kinds, reverse=True)[:2]
    if not named:
        return ""
    parts = [f"{share:.0%} from {words}" for share, words in named]
    return f"Of the excess of the {len(found)} largest tokens, {' and '.join(parts)}."


def attribution_rows(found: Sequence[tuple[TopToken, float]]) -> list[dict[str, Any]]:
    """Return the tokens with the largest share of the excess, each with where it stands, as rows of a table."""
    total = sum(excess for _, excess in found)
    groups: dict[tuple[str, str], list[tuple[TopToken, float]]] = defaultdict(list)
    for token, excess in found:
        groups[_name(token.text, token.token), _name(token.previous_text, token.previous)].append((token, excess))
    rows: list[dict[str, Any]] = [
        {
            "token": name,
            "after": previous,
            "times": len(members),
            "share of excess": sum(excess for _, excess in members) / total,
            "largest log-ratio": max((token.log_ratio for token, _ in members), key=abs),
        }
        for (name, previous), members in groups.items()
    ]
    return sorted(rows, key=lambda row: row["share of excess"], reverse=True)[:SHOWN]


def _shares(
    found: Sequence[tuple[TopToken, float]], describe: Callable[[TopToken], str], total: float
) -> dict[str, float]:
    sums: dict[str, float] = defaultdict(float)
    for token, excess in found:
        sums[describe(token)] += excess / total
    return sums


def _by_token(token: TopToken) -> str:
    return f"token {_name(token.text, token.token)}"


def _by_place(token: TopToken) -> str:
    number = token.position + 1
    where = "the completion" if token.turn == 0 else f"the answer to tool result {token.turn}"
    return f"place {number} of {where}"


def _name(text: str, token: int) -> str:
    if token < 0:
        return "(start)"
    shown = text if len(text) <= LONGEST_TEXT else text[:LONGEST_TEXT] + "…"
    return repr(shown) if text else f"id {token}"
