"""What the checks need of a token dump, counted in one pass whose memory does not grow with the tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from foreshock.batch import DOUBTED, OLD_ROLLOUT, POLICY_ROLLOUT
from foreshock.run import Block, Run
from foreshock.sketch import LogRatioSketch
from foreshock.sources.dumps.summary import StepSummary, summarise
from foreshock.sources.dumps.tokens import Bools, DumpBatch, placeholders

EARLY_STEPS = 5
"""Steps at the start of a dump that are compared by slice."""

GROUPED_STEPS = 100
"""Steps at the start of a dump whose groups are counted."""

STRETCH = 3
"""Placeholders in a row from which on they are taken for an observation that the policy never sampled (heuristic)."""

IMPOSSIBLE = -10.0
"""Nats. A token that is always this unlikely, 1 in 22,000, is not sampled time and again."""

TRAINERS = ("policy", "old")
"""The trainer's own policies, of which a dump holds one."""

TOKENS = "response_tokens"


@dataclass(slots=True)
class TokenCount:
    """How often a token id was trained, how often it was impossible, and how often it then stood beside a result."""

    times: int = 0
    impossible: int = 0
    beside: int = 0


@dataclass(slots=True)
class Tally:
    """Counts of a dump.

    ``steps``: per step, the counters of a block, and of response tokens ``zero/<policy>``, those with a log-probability
    of exactly 0; ``unscored``, those of them that the trainer would not call certain; ``stretches``, those of these
    that stand at least :data:`STRETCH` in a row in a completion that the sampler did score; and ``scored outside``,
    tokens outside the mask that the sampler scored. ``early``: sketches trainer/sampler of the first steps.
    ``groups``: rows a prompt, by step. ``tokens``: by token id. ``policies``: whose log-probabilities were seen.
    """

    steps: dict[int, Counter[str]] = field(default_factory=dict)
    early: dict[int, LogRatioSketch] = field(default_factory=dict)
    groups: dict[int, Counter[int]] = field(default_factory=dict)
    tokens: dict[int, TokenCount] = field(default_factory=dict)
    policies: set[str] = field(default_factory=set)
    repeated: int = 0
    _seen: dict[tuple[int, bytes], set[str]] = field(default_factory=dict)

    def add_file(self, batches: Sequence[DumpBatch], skipped: Counter[str]) -> None:
        """Take in the batches of one file, unless another worker's file held the same samples with as much of them."""
        summary = summarise(batches, skipped)
        if summary is None:
            return
        key = summary.step, summary.samples
        policies = {name for batch in batches for name in batch.tokens.log_probs}
        known = self._seen.setdefault(key, set())
        if known and policies <= known:
            self.repeated += 1
            return
        first_time = not known
        known |= policies
        self.policies |= policies
        self._add_summary(summary, first_time)
        for batch in batches:
            self._add_tokens(batch)

    def total(self, name: str) -> int:
        """Sum of a counter over all steps."""
        return sum(step[name] for step in self.steps.values())

    def share(self, name: str) -> float:
        """A counter as a share of the response tokens; 0 without any."""
        return self.total(name) / max(self.total(TOKENS), 1)

    def span(self, name: str = TOKENS) -> tuple[int, int]:
        """The first and the last step at which a counter is not 0; of the whole dump when it is 0 everywhere."""
        found = [step for step, counts in self.steps.items() if counts[name]] or list(self.steps)
        return min(found), max(found)

    @property
    def trainer(self) -> str | None:
        """Whose log-probabilities, beside the sampler's, are the trainer's; None when the dump has none."""
        return next((name for name in TRAINERS if name in self.policies), None)

    def run(self) -> Run:
        """Return the counters as a run with one block a step, for the rules that read no sketches."""
        blocks = [
            Block(index, step, step, {}, counters={name: (float(count),) for name, count in counts.items()})
            for index, (step, counts) in enumerate(sorted(self.steps.items()))
        ]
        return Run(blocks=blocks)

    def _add_summary(self, summary: StepSummary, first_time: bool) -> None:
        counts = self.steps.setdefault(summary.step, Counter())
        counts.update(summary.counters)
        pair = next((pair for pair in (POLICY_ROLLOUT, OLD_ROLLOUT) if pair in summary.sketches), None)
        if pair is not None and (summary.step in self.early or len(self.early) < EARLY_STEPS):
            self.early.setdefault(summary.step, LogRatioSketch()).merge(summary.sketches[pair])
        if first_time and (summary.step in self.groups or len(self.groups) < GROUPED_STEPS):
            rows = self.groups.setdefault(summary.step, Counter())
            rows.update({prompt: group.rows for prompt, group in summary.groups.items()})

    def _add_tokens(self, batch: DumpBatch) -> None:
        tokens, counts = batch.tokens, self.steps[batch.step]
        response: Bools = tokens.response_mask
        for name, values in tokens.log_probs.items():
            counts[f"zero/{name}"] += int(((values == 0) & response).sum())
        sampler = tokens.log_probs.get("rollout")
        trainer = next((tokens.log_probs[name] for name in TRAINERS if name in tokens.log_probs), None)
        if sampler is not None:
            counts["scored outside"] += int(((sampler != 0) & ~response).sum())
            if trainer is not None:
                counts["unscored"] += int(placeholders(trainer, sampler, response).sum())
                scored_rows = ((sampler != 0) & response).any(axis=1, keepdims=True)
                single = (sampler == 0) & (trainer < DOUBTED) & response & scored_rows
                counts["stretches"] += int(_in_stretches(single).sum())
        self._count_ids(batch, [values for values in (trainer, sampler) if values is not None])

    def _count_ids(self, batch: DumpBatch, log_probs: Sequence[npt.NDArray[Any]]) -> None:
        ids: npt.NDArray[np.int64] = np.asarray(batch.tokens.token_ids)
        response: Bools = batch.tokens.response_mask
        impossible = np.zeros_like(response)
        for values in log_probs:
            impossible |= ~(values > IMPOSSIBLE)  # also what is no number
        impossible &= response
        observed = batch.tokens.observation_mask
        beside = np.zeros_like(response)
        beside[:, 1:] |= observed[:, :-1]
        beside[:, :-1] |= observed[:, 1:]
        for name, inside in (("times", response), ("impossible", impossible), ("beside", impossible & beside)):
            for token, count in zip(*np.unique(ids[inside], return_counts=True), strict=True):
                found = self.tokens.setdefault(int(token), TokenCount())
                setattr(found, name, getattr(found, name) + int(count))


def _in_stretches(marked: Bools) -> Bools:
    """Return the marked places, ``(B, T)``, that stand at least :data:`STRETCH` in a row."""
    width = max(marked.shape[1] - STRETCH + 1, 0)
    whole = np.logical_and.reduce([marked[:, start : start + width] for start in range(STRETCH)])
    found = np.zeros_like(marked)
    for start in range(STRETCH):
        found[:, start : start + width] |= whole
    return found
