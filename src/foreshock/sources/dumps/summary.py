"""The map: one file of a dump becomes one summary, whose size does not depend on how many tokens the file holds."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from foreshock.batch import SLICES
from foreshock.run import TopToken
from foreshock.sketch import LogRatioSketch
from foreshock.sources.dumps.tokens import Bools, DumpBatch, Floats, pairs, placeholders

KEPT = 16
"""Tokens with the largest |log-ratio| that are kept per pair and slice, at most one a row."""

Top = dict[str, list[TopToken]]


@dataclass(slots=True)
class Group:
    """The rows of one prompt: how many, how many with a reward, and the range of these."""

    rows: int = 0
    rewarded: int = 0
    lowest: float = math.inf
    highest: float = -math.inf

    def add(self, other: Group) -> None:
        """Take in more rows of the same prompt."""
        self.rows += other.rows
        self.rewarded += other.rewarded
        self.lowest, self.highest = min(self.lowest, other.lowest), max(self.highest, other.highest)


@dataclass(slots=True)
class StepSummary:
    """What one file says of one step.

    ``samples``: a digest of all token ids and masks; files of several workers with the same one hold the same samples.
    ``sketches`` and ``top``: by pair. ``counters``: as those of a block. ``sums``: of ``reward`` and ``entropy``, and
    ``reward/n`` and ``entropy/n``, over how many values.
    """

    step: int
    samples: bytes
    sketches: dict[str, LogRatioSketch] = field(default_factory=dict)
    top: dict[str, Top] = field(default_factory=dict)
    counters: Counter[str] = field(default_factory=Counter)
    sums: dict[str, float] = field(default_factory=dict)
    groups: dict[int, Group] = field(default_factory=dict)


def summarise(batches: Iterable[DumpBatch], skipped: Counter[str]) -> StepSummary | None:
    """Summarise the batches of one file; None when it holds none."""
    summary, hashed = None, hashlib.blake2b(digest_size=16)
    for batch in batches:
        summary = summary or StepSummary(batch.step, b"")
        hashed.update(np.ascontiguousarray(batch.tokens.token_ids).tobytes())
        hashed.update(np.ascontiguousarray(batch.tokens.response_mask).tobytes())
        with np.errstate(invalid="ignore", over="ignore"):
            _add(summary, batch, skipped)
    if summary is not None:
        summary.samples = hashed.digest()
    return summary


def _add(summary: StepSummary, batch: DumpBatch, skipped: Counter[str]) -> None:
    response: Bools = batch.tokens.response_mask
    post_tool = batch.tokens.slice_ids()
    summary.counters.update(
        rows=len(response),
        response_tokens=int(response.sum()),
        observation_tokens=int(batch.tokens.observation_mask.sum()),
        post_tool_tokens=int((response & post_tool).sum()),
    )
    for policy, values in batch.tokens.log_probs.items():
        summary.counters[f"nonfinite/{policy}"] += int((~np.isfinite(values) & response).sum())
    if batch.advantages is not None:
        summary.counters["nonfinite/advantages"] += int((~np.isfinite(batch.advantages) & response).sum())
    for pair, (numerator, denominator) in pairs(batch.tokens).items():
        unscored = placeholders(numerator, denominator, response)
        if unscored.any():
            skipped[f"{pair} tokens with 0.0 in place of a log-probability"] += int(unscored.sum())
        log_ratio = numerator.astype(np.float32) - denominator.astype(np.float32)
        mask = response & ~unscored
        summary.sketches.setdefault(pair, LogRatioSketch()).update(log_ratio, post_tool, mask)
        top = summary.top.setdefault(pair, {name: [] for name in SLICES})
        for name, inside in zip(SLICES, (mask & ~post_tool, mask & post_tool), strict=True):
            top[name] = largest((*top[name], *_top_tokens(batch, log_ratio, inside)))
    _add_sum(summary, "reward", batch.rewards)
    if batch.entropy is not None:
        _add_sum(summary, "entropy", batch.entropy[response])
    for prompt, reward in zip(batch.prompts.tolist(), batch.rewards.tolist(), strict=True):
        known = not math.isnan(reward)
        found = Group(1, known, *((reward, reward) if known else ()))
        summary.groups.setdefault(prompt, Group()).add(found)


def _add_sum(summary: StepSummary, name: str, values: Floats) -> None:
    known = values[~np.isnan(values)]
    if known.size:
        summary.sums[name] = summary.sums.get(name, 0.0) + float(known.sum())
        summary.sums[f"{name}/n"] = summary.sums.get(f"{name}/n", 0.0) + known.size


def largest(tokens: Iterable[TopToken]) -> list[TopToken]:
    """Return the :data:`KEPT` tokens with the largest |log-ratio|, largest first; of equal ones the earlier."""
    return sorted(tokens, key=lambda token: -abs(token.log_ratio))[:KEPT]


def _top_tokens(batch: DumpBatch, log_ratio: npt.NDArray[np.float32], inside: Bools) -> list[TopToken]:
    """Return the token with the largest finite |log-ratio| of each of the rows that can enter the list."""
    if not inside.size:
        return []
    size = np.where(inside & np.isfinite(log_ratio), np.abs(log_ratio), 0)
    columns = size.argmax(1)
    of_row = size[np.arange(len(size)), columns]
    rows = np.argsort(-of_row, kind="stable")[:KEPT]
    return [_top_token(batch, log_ratio, row, columns[row]) for row in rows.tolist() if of_row[row] > 0]


def _top_token(batch: DumpBatch, log_ratio: npt.NDArray[np.float32], row: int, column: int) -> TopToken:
    tokens = batch.tokens
    observed, ids = tokens.observation_mask[row, :column], tokens.token_ids[row]  # type: ignore[index]
    before = np.flatnonzero(observed)
    turn = int((np.diff(before, prepend=-2) > 1).sum())
    position = int(tokens.response_mask[row, (before[-1] + 1 if before.size else 0) : column].sum())
    previous = int(ids[column - 1]) if column else -1
    return TopToken(float(log_ratio[row, column]), batch.step, turn, position, int(ids[column]), previous)
