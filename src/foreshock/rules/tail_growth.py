"""Post-tool tail growth: the first sign of a support mismatch that no aggregate shows.

What: the tail of |log-ratio| of response tokens after tool results stretches, and the text-only tail does not.
Why it matters: a few tokens then rule the importance-weighted update, before loss, reward, entropy or mean KL move.
Known problems: it needs enough tokens of both slices in a block; where text-only tokens are missing it cannot judge. A
policy that is still moving away from its reference after the warm-up looks like growth. Growth below ×1.2 is only noted
however certain it is; that bound is a heuristic.
Example: "After tool results, p99 of |log-ratio policy/ref| has grown ×2.31 since steps 31–70, in text-only contexts
×1.04."
Options: ``steps_per_block`` of ``foreshock.watch``: longer blocks hold more tokens and answer later.
References: Vovk, Nouretdinov and Gammerman, "Testing exchangeability on-line" (ICML 2003); Shin, Ramdas and Rinaldo,
"E-detectors: a nonparametric framework for sequential change detection" (arXiv:2203.03532); docs/detectors.md for the
measured rates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from foreshock.batch import POST_TOOL, TEXT_ONLY
from foreshock.detect.aggregates import Change
from foreshock.detect.e_process import CRITICAL_STEPS, REFERENCE_BLOCKS, WARNING_STEPS, growth_evidence, threshold
from foreshock.detect.tail import tail_contrast, tail_level
from foreshock.rules.aggregates import aggregate_changes, aggregate_sentence, listed, warm_up_steps
from foreshock.rules.attribution import attribute
from foreshock.rules.causes import HIDDEN, SUPPORT_MISMATCH
from foreshock.rules.finding import CannotJudge, Finding, RuleResult
from foreshock.run import Block, Run, merge_pair
from foreshock.sketch import LogRatioSketch
from foreshock.stats.diagnostic import Diagnostic

Floats = npt.NDArray[np.float64]

ID = "post-tool-tail-growth"

MINIMUM_GROWTH = 1.2
"""Growth of the post-tool tail, and beyond the text-only one, below which there is only a note (heuristic)."""

CRITICAL_GROWTH = 1.5
"""Growth from which on the finding is critical, when the evidence is ten times that of a warning (heuristic)."""

ENOUGH_BETS = 4
"""Judged blocks after the reference below which silence means nothing."""


def check(run: Run) -> RuleResult:
    """Judge the growth of the post-tool tail against the text-only contrast, on the pair of :attr:`Run.pair`.

    An alarm stays: a tail that has receded since is still reported, and said to have receded.
    """
    pair = run.pair
    if pair is None:
        return RuleResult()
    warm_up = warm_up_steps(run)
    blocks = [block for block in run.blocks if pair in block.sketches and block.first_step > warm_up]
    contrasts = [_memo(block, pair, "contrast", tail_contrast) for block in blocks]
    usable = [block for block, contrast in zip(blocks, contrasts, strict=True) if contrast.ok]
    if len(usable) < REFERENCE_BLOCKS + ENOUGH_BETS:
        return RuleResult(cannot_judge=(_too_little(contrasts, len(usable), warm_up),))
    tail = _read_tail(usable, pair)
    certain = np.flatnonzero(tail.evidence >= threshold(tail.steps_per_block, WARNING_STEPS))
    if not certain.size:
        return RuleResult()
    grown = certain[tail.growth[certain] >= MINIMUM_GROWTH]
    if not grown.size:
        return RuleResult((_note_of_small_growth(tail, int(certain[0]), run.last_step),))
    return RuleResult((_finding(run, tail, int(grown[0]), warm_up),))


@dataclass(frozen=True, slots=True)
class _Tail:
    """The judged blocks of one pair. ``evidence`` and ``growth`` have one entry a block.

    ``growth`` is by what factor the post-tool tail has grown, on its own and beyond the text-only one (the smaller of
    the two), from the reference blocks to the latest as many: of the geometric mean of |r| over the top 2 %.
    """

    pair: str
    blocks: Sequence[Block]
    evidence: Floats
    growth: Floats

    @property
    def steps_per_block(self) -> int:
        return max(block.last_step - block.first_step + 1 for block in self.blocks)

    @property
    def baseline(self) -> Sequence[Block]:
        return self.blocks[:REFERENCE_BLOCKS]

    @property
    def recent(self) -> Sequence[Block]:
        return self.blocks[-REFERENCE_BLOCKS:]

    def p99_growth(self, slice_name: str) -> float:
        return _p99(self.recent, self.pair, slice_name) / _p99(self.baseline, self.pair, slice_name)


def _read_tail(blocks: Sequence[Block], pair: str) -> _Tail:
    contrasts = np.array([_memo(block, pair, "contrast", tail_contrast).value for block in blocks])
    levels = np.array([_memo(block, pair, "level", _post_tool_level).value for block in blocks])
    steps_per_block = max(block.last_step - block.first_step + 1 for block in blocks)
    evidence = growth_evidence(contrasts, levels, steps_per_block)
    return _Tail(pair, blocks, evidence, np.exp(np.minimum(_rise(contrasts), _rise(levels))))


def _rise(values: Floats) -> Floats:
    """Return the mean of the latest reference-many values minus that of the first, for each block."""
    sums = np.cumsum(np.concatenate([[0.0], values]))
    window = np.minimum(np.arange(1, len(values) + 1), REFERENCE_BLOCKS)
    latest = (sums[1:] - sums[np.arange(1, len(values) + 1) - window]) / window
    return np.asarray(latest - values[:REFERENCE_BLOCKS].mean())


def _finding(run: Run, tail: _Tail, alarm: int, warm_up: int) -> Finding:
    alarm_step = tail.blocks[alarm].last_step
    critical = (tail.evidence >= threshold(tail.steps_per_block, CRITICAL_STEPS)) & (tail.growth >= CRITICAL_GROWTH)
    then, now = aggregate_changes(run, until=alarm_step), aggregate_changes(run)
    tokens = attribute(tail.recent, tail.pair, POST_TOOL, above=_p99(tail.baseline, tail.pair, POST_TOOL))
    return Finding(
        rule=ID,
        severity="critical" if critical.any() else "warning",
        slice=POST_TOOL,
        steps=(alarm_step, run.last_step),
        summary=_sentences(
            _growth_sentence(tail),
            "It has receded since its alarm." if tail.growth[-1] < MINIMUM_GROWTH else "",
            _aggregates_then_and_now(then, now, alarm_step, warm_up),
            tokens.sentence(),
        ),
        evidence=_evidence({"baseline": tail.baseline, "latest": tail.recent}, tail.pair),
        tokens=tuple(tokens.rows()),
        certainty=_certainty(float(tail.evidence.max()), tail.steps_per_block),
        cause=SUPPORT_MISMATCH,
        name=HIDDEN if _is_hidden(then) else "",
        exclusions=_exclusions(tail.p99_growth(TEXT_ONLY), then),
        advice=(
            "Keep a checkpoint from before this step. Hold post-tool tokens closer to the reference (a KL weight of "
            "their own), constrain the tool's output, or widen the reference with dialogues that hold such results."
        ),
        next_check=(
            "Look at the response tokens right after the tool results that became more frequent lately: the same "
            "prompts with tool results in a fixed form should show no growth."
        ),
    )


def _note_of_small_growth(tail: _Tail, alarm: int, last_step: int) -> Finding:
    """Say that growth is certain but small: no reason to act."""
    step = tail.blocks[alarm].last_step
    summary = f"Since step {step} it is certain that the tail grows, but by little. {_growth_sentence(tail)}"
    return Finding(ID, "note", summary, (step, last_step), POST_TOOL)


def _post_tool_level(sketch: LogRatioSketch) -> Diagnostic:
    return tail_level(sketch, POST_TOOL)


def _memo(block: Block, pair: str, name: str, read: Callable[[LogRatioSketch], Diagnostic]) -> Diagnostic:
    key = f"{name} {pair}"
    if key not in block.derived:
        block.derived[key] = read(block.sketches[pair])
    found: Diagnostic = block.derived[key]
    return found


def _too_little(contrasts: Sequence[Diagnostic], usable: int, warm_up: int) -> CannotJudge:
    needed = REFERENCE_BLOCKS + ENOUGH_BETS
    reason = f"{usable} blocks after the first {warm_up} steps can be judged, {needed} are needed."
    unusable = [contrast.reason for contrast in contrasts if not contrast.ok]
    if len(unusable) > usable:
        return CannotJudge(ID, reason, f"In the last block that could not be, {unusable[-1]}.")
    return CannotJudge(ID, reason, "Train longer, or pass a smaller steps_per_block if blocks hold many tokens.")


def _p99(blocks: Sequence[Block], pair: str, slice_name: str) -> float:
    merged = merge_pair(blocks, pair)
    return math.nan if merged is None else merged.quantile(0.99, slice_name).value


def _growth_sentence(tail: _Tail) -> str:
    post, text = tail.p99_growth(POST_TOOL), tail.p99_growth(TEXT_ONLY)
    return (
        f"After tool results, p99 of |log-ratio {tail.pair}| has grown ×{post:.2f} since steps "
        f"{tail.baseline[0].first_step}–{tail.baseline[-1].last_step}, in text-only contexts ×{text:.2f}."
    )


def _aggregates_then_and_now(then: dict[str, Change], now: dict[str, Change], alarm: int, warm_up: int) -> str:
    sentence = aggregate_sentence(then, warm_up)
    later = [name for name, change in now.items() if change.moved and name in then and not then[name].moved]
    return _sentences(
        sentence and f"When that was certain, at step {alarm}: {sentence}.",
        "Moved later: " + ", ".join(f"{name} since step {now[name].since_step}" for name in later) + "."
        if later
        else "",
    )


def _sentences(*parts: str) -> str:
    return " ".join(filter(None, parts))


def _certainty(evidence: float, steps_per_block: int) -> str:
    level = threshold(steps_per_block, WARNING_STEPS)
    return (
        f"The evidence reached {evidence:.3g}. Without a change it reaches {level:.3g} at most once per "
        f"{WARNING_STEPS:,} steps on average by its construction, and less often as measured."
    )


def _is_hidden(changes: dict[str, Change]) -> bool:
    return bool(changes) and not any(change.moved or change.reason for change in changes.values())


def _exclusions(text: float, changes: dict[str, Change]) -> tuple[str, ...]:
    found = []
    if _is_hidden(changes):
        hidden = f"{HIDDEN[0].upper()}{HIDDEN[1:]}"
        found.append(f"{hidden}: at the alarm nothing had moved of {listed(list(changes))}, which do not show it.")
    if text < MINIMUM_GROWTH:
        found.append(f"The text-only tail is flat (×{text:.2f}): not the optimiser, which would move both slices.")
    return tuple(found)


def _evidence(parts: dict[str, Sequence[Block]], pair: str) -> tuple[dict[str, object], ...]:
    rows = []
    for name, blocks in parts.items():
        merged = merge_pair(blocks, pair)
        assert merged is not None
        for slice_name in (TEXT_ONLY, POST_TOOL):
            rows.append(
                {
                    "segment": name,
                    "steps": f"{blocks[0].first_step}–{blocks[-1].last_step}",
                    "slice": slice_name,
                    "tokens": merged.n(slice_name),
                    "p95": merged.quantile(0.95, slice_name).value,
                    "p99": merged.quantile(0.99, slice_name).value,
                    "p99.9": merged.quantile(0.999, slice_name).value,
                    "ESS/n": merged.ess_share(slice_name, cap=3.0).value,
                }
            )
    return tuple(rows)
