"""Post-tool tail growth: the first sign of a support mismatch that no aggregate shows.

What: the tail of |log-ratio| of response tokens after tool results stretches, and the text-only tail does not.
Why it matters: a few tokens then rule the importance-weighted update, before loss, reward, entropy or mean KL move.
Known problems: it needs enough tokens of both slices in a block; where text-only tokens are missing it cannot judge. A
policy that is still moving away from its reference after the warm-up looks like growth. Growth below
:data:`MINIMUM_GROWTH` is only noted however certain it is; that bound is a heuristic.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from foreshock.batch import POST_TOOL, TEXT_ONLY
from foreshock.detect.aggregates import Change
from foreshock.detect.e_process import CRITICAL_STEPS, REFERENCE_BLOCKS, WARNING_STEPS, growth_evidence, threshold
from foreshock.detect.tail import tail_contrast, tail_level
from foreshock.rules.aggregates import aggregate_changes, aggregate_sentence, warm_up_steps
from foreshock.rules.attribution import attribution_rows, attribution_sentence, largest_tokens
from foreshock.rules.finding import CannotJudge, Finding, RuleResult
from foreshock.run import Block, Run, merge_pair
from foreshock.sketch import LogRatioSketch
from foreshock.stats.diagnostic import Diagnostic

ID = "post-tool-tail-growth"

MINIMUM_GROWTH = 1.2
"""Growth of post-tool p99 of |r|, and beyond the text-only one, below which there is only a note (heuristic)."""

CRITICAL_GROWTH = 1.5
"""Growth from which on the finding is critical, when the evidence is ten times that of a warning (heuristic)."""

ENOUGH_BETS = 4
"""Judged blocks after the reference below which silence means nothing."""

CAUSE = "tool-conditioned support mismatch"


def check(run: Run) -> RuleResult:
    """Judge the growth of the post-tool tail against the text-only contrast, on the pair of :attr:`Run.pair`."""
    pair = run.pair
    if pair is None:
        return RuleResult()
    warm_up = warm_up_steps(run)
    blocks = [block for block in run.blocks if pair in block.sketches and block.first_step > warm_up]
    contrasts = [_memo(block, pair, "contrast", tail_contrast) for block in blocks]
    levels = [_memo(block, pair, "level", _post_tool_level) for block in blocks]
    usable = [block for block, contrast in zip(blocks, contrasts, strict=True) if contrast.ok]
    if len(usable) < REFERENCE_BLOCKS + ENOUGH_BETS:
        return RuleResult(cannot_judge=(_too_little(contrasts, len(usable), warm_up),))
    steps_per_block = max(block.last_step - block.first_step + 1 for block in blocks)
    evidence = growth_evidence([c.value for c in contrasts], [level.value for level in levels], steps_per_block)
    alarm = _first(evidence, threshold(steps_per_block, WARNING_STEPS))
    if alarm is None:
        return RuleResult()
    baseline, recent = usable[:REFERENCE_BLOCKS], usable[-REFERENCE_BLOCKS:]
    post, text = (_growth(baseline, recent, pair, name) for name in (POST_TOOL, TEXT_ONLY))
    if not min(post, post / text) >= MINIMUM_GROWTH:
        return RuleResult(_small_or_over(pair, blocks[alarm].last_step, run.last_step, post, text, baseline))
    certain = _first(evidence, threshold(steps_per_block, CRITICAL_STEPS)) is not None
    critical = certain and post / text >= CRITICAL_GROWTH
    alarm_step = blocks[alarm].last_step
    then, now = aggregate_changes(run, until=alarm_step), aggregate_changes(run)
    tokens = largest_tokens(recent, POST_TOOL, _p99(baseline, pair, POST_TOOL))
    return RuleResult(
        (
            Finding(
                rule=ID,
                severity="critical" if critical else "warning",
                slice=POST_TOOL,
                steps=(alarm_step, run.last_step),
                summary=_sentences(
                    _growth_sentence(pair, post, text, baseline),
                    _aggregates_then_and_now(then, now, alarm_step, warm_up),
                    attribution_sentence(tokens),
                ),
                evidence=_evidence({"baseline": baseline, "latest": recent}, pair),
                tokens=tuple(attribution_rows(tokens)),
                certainty=_certainty(float(np.nanmax(evidence)), steps_per_block),
                cause=CAUSE,
                exclusions=_exclusions(text, then),
                advice=(
                    "Keep a checkpoint from before this step. Hold post-tool tokens closer to the reference (a KL "
                    "weight of their own), constrain the tool's output, or widen the reference with dialogues that "
                    "hold such results."
                ),
                next_check=(
                    "Look at the response tokens right after the tool results that became more frequent lately: the "
                    "same prompts with tool results in a fixed form should show no growth."
                ),
            ),
        )
    )


def _post_tool_level(sketch: LogRatioSketch) -> Diagnostic:
    return tail_level(sketch, POST_TOOL)


def _memo(block: Block, pair: str, name: str, read: Callable[[LogRatioSketch], Diagnostic]) -> Diagnostic:
    key = f"{name} {pair}"
    if key not in block.derived:
        block.derived[key] = read(block.sketches[pair])
    found: Diagnostic = block.derived[key]
    return found


def _first(evidence: np.ndarray[tuple[int], np.dtype[np.float64]], level: float) -> int | None:
    reached = np.flatnonzero(evidence >= level)
    return int(reached[0]) if reached.size else None


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


def _growth(baseline: Sequence[Block], recent: Sequence[Block], pair: str, slice_name: str) -> float:
    return _p99(recent, pair, slice_name) / _p99(baseline, pair, slice_name)


def _small_or_over(
    pair: str, alarm: int, last_step: int, post: float, text: float, baseline: Sequence[Block]
) -> tuple[Finding, ...]:
    """Keep an alarm whose growth is small, or has gone since, as a note: it was seen, and is no reason to act."""
    summary = f"Evidence of growth was reached at step {alarm}, but by now it is small. "
    note = Finding(ID, "note", summary + _growth_sentence(pair, post, text, baseline), (alarm, last_step), POST_TOOL)
    return (note,)


def _growth_sentence(pair: str, post: float, text: float, baseline: Sequence[Block]) -> str:
    return (
        f"After tool results, p99 of |log-ratio {pair}| has grown ×{post:.2f} since steps "
        f"{baseline[0].first_step}–{baseline[-1].last_step}, in text-only contexts ×{text:.2f}."
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


def _exclusions(text: float, changes: dict[str, Change]) -> tuple[str, ...]:
    found = []
    if text < MINIMUM_GROWTH:
        found.append(f"The text-only tail is flat (×{text:.2f}): not the optimiser, which would move both slices.")
    if changes and not any(change.moved or change.reason for change in changes.values()):
        found.append("Aggregates unchanged at the alarm: the failure is hidden from loss, reward, entropy and mean KL.")
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
