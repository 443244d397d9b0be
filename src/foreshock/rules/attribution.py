"""Which tokens make a tail: a sentence and a table from the largest tokens of some blocks.

The excess of a token is by how many nats its |log-ratio| exceeds a level, such as the p99 of the first blocks. Only the
largest tokens of a block are kept with where they stand, at most one a row; what share of all the excess they hold is
read from the sketches and said with them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from foreshock.rules.statements import listed
from foreshock.run import Block, TopToken, merge_pair
from foreshock.sketch.buckets import LARGEST
from foreshock.stats.diagnostic import Diagnostic

SHOWN = 5
"""Rows of the table."""

LONGEST_TEXT = 20
"""Characters of a token's text that are shown."""

WORTH_SAYING = 0.3
"""Share of the excess from which on a single kind of token is named in a sentence (heuristic)."""


@dataclass(frozen=True, slots=True)
class Attribution:
    """The kept tokens of a slice that exceed a level, and by how many nats each does.

    ``coverage``: their share of the excess of all tokens of the slice; 0 when there is none.
    """

    tokens: tuple[TopToken, ...]
    excess: tuple[float, ...]
    coverage: float

    def sentence(self) -> str:
        """Say which kinds of tokens have most of the excess: which token, after which one, at which place, which tool.

        "" when none of them stands out.
        """
        kinds = [max(self._shares(describe).items(), key=lambda kind: kind[1]) for describe in _KINDS if self.tokens]
        named = [(share, words) for words, share in kinds if words and share >= WORTH_SAYING]
        if not named:
            return ""
        parts = [f"{share:.0%} from {words}" for share, words in sorted(named, key=lambda kind: -kind[0])]
        held = f"The {len(self.tokens)} largest tokens hold" if len(self.tokens) > 1 else "The largest token holds"
        return f"{held} {self.coverage:.0%} of the excess of the tail; of their part {listed(parts)}."

    def rows(self) -> list[dict[str, Any]]:
        """Return the tokens with the largest share of all excess, each with what stands before it, as table rows."""
        total = sum(self.excess)
        groups: dict[tuple[str, str, str], list[tuple[TopToken, float]]] = defaultdict(list)
        for token, excess in zip(self.tokens, self.excess, strict=True):
            groups[_text(token.text, token.token), _text(token.previous_text, token.previous), token.tool].append(
                (token, excess)
            )
        rows: list[dict[str, Any]] = [
            {
                "token": name,
                "after": previous,
                **({"tool": tool} if any(token.tool for token in self.tokens) else {}),
                "times": len(members),
                "share of excess": sum(excess for _, excess in members) / total * self.coverage,
                "largest log-ratio": max((token.log_ratio for token, _ in members), key=abs),
            }
            for (name, previous, tool), members in groups.items()
        ]
        return sorted(rows, key=lambda row: row["share of excess"], reverse=True)[:SHOWN]

    def _shares(self, describe: Callable[[TopToken], str]) -> dict[str, float]:
        total = sum(self.excess)
        sums: dict[str, float] = defaultdict(float)
        for token, excess in zip(self.tokens, self.excess, strict=True):
            sums[describe(token)] += excess / total
        return sums


def attribute(blocks: Sequence[Block], pair: str, slice_name: str, above: float) -> Attribution:
    """Return what the kept tokens of a slice contribute to its excess over ``above``, a |log-ratio| of the pair."""
    kept = [token for block in blocks for token in block.top.get(slice_name, ()) if abs(token.log_ratio) > above]
    excess = [min(abs(token.log_ratio), LARGEST) - above for token in kept]
    merged = merge_pair(blocks, pair)
    found = Diagnostic.unknown(0, "no sketch") if merged is None else merged.excess(above, slice_name)
    coverage = min(sum(excess) / (found.value * found.n), 1.0) if found.n and found.value > 0 else 0.0
    return Attribution(tuple(kept), tuple(excess), coverage)


def _token(token: TopToken) -> str:
    return f"token {_text(token.text, token.token)}"


def _after(token: TopToken) -> str:
    return f"the token after {_text(token.previous_text, token.previous)}" if token.previous >= 0 else ""


def _place(token: TopToken) -> str:
    number = token.position + 1
    where = "the completion" if token.turn == 0 else f"the answer to tool result {token.turn}"
    return f"place {number} of {where}"


def _tool(token: TopToken) -> str:
    return f"answers to the tool {token.tool}" if token.tool else ""


_KINDS = (_token, _after, _place, _tool)


def _text(text: str, token: int) -> str:
    if token < 0:
        return "(start)"
    shown = text if len(text) <= LONGEST_TEXT else text[:LONGEST_TEXT] + "…"
    return repr(shown) if text else f"id {token}"
