"""Post-tool tail growth: the first sign of a support mismatch that no aggregate shows.

What: the tail of |log-ratio| of response tokens after tool results stretches, and the text-only tail does not. It is
judged by its level and by its shape: how far its largest tokens stand out from the others of the same slice.
Why it matters: a few tokens then rule the importance-weighted update, before loss, reward, entropy or mean KL move.
Known problems: it needs enough tokens of both slices in a block. Where text-only tokens are missing, it judges the
post-tool level alone, which ordinary learning moves too, and says so. A policy that is still moving away from its
reference after the warm-up looks like growth, and one whose tail was far out before the first judged block does not:
that is a note. Growth below ×1.2 is only noted however certain it is, and only growth that is beyond, or at its present
rate soon reaches, a p99 of 2 nats is critical; both bounds are heuristics.
Example: "After tool results, p99 of |log-ratio policy/ref| has grown ×2.31 since steps 31–70, in text-only contexts
×1.04."
Options: ``steps_per_block`` of ``foreshock.watch``: longer blocks hold more tokens and answer later.
References: Vovk, Nouretdinov and Gammerman, "Testing exchangeability on-line" (ICML 2003); Shin, Ramdas and Rinaldo,
"E-detectors: a nonparametric framework for sequential change detection" (arXiv:2203.03532); docs/detectors.md for the
measured rates.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from foreshock.batch import OLD_ROLLOUT, POLICY_ROLLOUT, POST_TOOL, TEXT_ONLY
from foreshock.detect.e_process import WARNING_STEPS, threshold
from foreshock.detect.growth import LATEST_BLOCKS
from foreshock.detect.series_change import Change
from foreshock.rules.aggregates import aggregate_changes, aggregate_sentence
from foreshock.rules.attribution import attribute
from foreshock.rules.block_counts import block_counts
from foreshock.rules.cause_names import ENGINE_MISMATCH, HIDDEN, SUPPORT_MISMATCH
from foreshock.rules.finding import CannotJudge, Finding, RuleResult
from foreshock.rules.statements import listed, sentences
from foreshock.rules.tail_course import (
    ENOUGH_BLOCKS,
    HARMFUL_P99,
    LONE_GROWTH,
    MINIMUM_GROWTH,
    TailCourse,
    tail_course,
)
from foreshock.rules.tail_effect import Effect, effect_of
from foreshock.run import Run

ID = "post-tool-tail-growth"

NEEDS = "blocks of foreshock.watch with a pair of policies, text-only and post-tool tokens"

SEVERITIES = ("note", "warning", "critical")

FAR = 2.0
"""Post-tool tail over text-only tail from which on a tail beyond the bound of harm is a note without growth, too."""

ADVICE: Mapping[str, str] = {
    SUPPORT_MISMATCH: (
        "Keep a checkpoint from before this step. Hold post-tool tokens closer to the reference (a KL weight of their "
        "own), constrain the tool's output, or widen the reference with dialogues that hold such results."
    ),
    ENGINE_MISMATCH: (
        "Keep a checkpoint from before this step. Find out what differs between sampler and trainer after tool results "
        "(token ids, template, cache, precision), and truncate or mask importance ratios until that is mended."
    ),
}

NEXT_CHECK: Mapping[str, str] = {
    SUPPORT_MISMATCH: (
        "Look at the response tokens right after the tool results that became more frequent lately: the same prompts "
        "with tool results in a fixed form should show no growth."
    ),
    ENGINE_MISMATCH: (
        "Compare the token ids that were sampled with those that are trained, turn by turn, and score one batch by "
        "both with the same weights."
    ),
}

NO_TOOL_RESULTS = "no response token stands after a tool result: the run has none, or they are not marked as such."
MARK_THEM = "Tool results are what the trainer's tools, environments or rollout masks say (docs/watching.md)."


def check(run: Run) -> RuleResult:
    """Judge the growth of the post-tool tail against the text-only contrast, on the pair of :attr:`Run.pair`.

    An alarm stays: a tail that has receded since is still reported, and said to have receded.
    """
    pair = run.pair
    if pair is None:
        return RuleResult()
    course = tail_course(run, pair)
    if course.alarm is not None:
        return RuleResult((_finding(run, course),))
    if not course.comparable:
        alone = (_without_contrast(run, course),) if course.alone is not None else ()
        return RuleResult(alone, (_too_little(run, course),))
    if course.small is not None:
        return RuleResult((_note_of_small_growth(run, course, course.small.last_step),))
    if course.alone is not None and course.text_growth >= MINIMUM_GROWTH > course.growth:
        return RuleResult((_note_of_common_drift(run, course, course.alone.last_step),))
    if course.steps_to_harm == 0 and course.level.beyond.latest >= math.log(FAR):
        return RuleResult((_note_of_far_tail(run, course),))
    text_alone = course.text_growth >= LONE_GROWTH and math.exp(course.level.own.size) < MINIMUM_GROWTH
    notes = (_note_of_text_only_growth(run, course),) if text_alone else ()
    return RuleResult(notes, judged=(f"no growth of the post-tool tail beyond the text-only one ({pair})",))


def _finding(run: Run, course: TailCourse) -> Finding:
    assert course.alarm is not None
    alarm_step = course.alarm.last_step
    effect = effect_of(course, course.contrasted, course.level.beyond)
    if course.at_alarm is None:
        course.at_alarm = aggregate_changes(run, until=alarm_step)
    then, now = course.at_alarm, aggregate_changes(run)
    tokens = attribute(effect.late, course.pair, POST_TOOL, above=effect.p99("early", POST_TOOL))
    return Finding(
        rule=ID,
        severity="critical" if course.critical is not None else "warning",
        slice=POST_TOOL,
        steps=(alarm_step, run.last_step),
        summary=sentences(
            effect.growth_sentence(),
            "It has receded since its alarm." if course.growth < MINIMUM_GROWTH else effect.trend_sentence(),
            _aggregates_then_and_now(then, now, alarm_step, course.warm_up),
            tokens.sentence(),
        ),
        evidence=effect.rows(),
        tokens=tuple(tokens.rows()),
        certainty=_certainty(course),
        cause=_cause(course.pair),
        name=HIDDEN if _is_hidden(then) else "",
        exclusions=_exclusions(effect, then),
        advice=ADVICE[_cause(course.pair)],
        next_check=NEXT_CHECK[_cause(course.pair)],
    )


def _note_of_small_growth(run: Run, course: TailCourse, since: int) -> Finding:
    effect = effect_of(course, course.contrasted, course.level.beyond)
    summary = f"Since step {since} it is certain that the tail grows, but by little. {effect.growth_sentence()}"
    return Finding(ID, "note", summary, (since, run.last_step), POST_TOOL, evidence=effect.rows())


def _note_of_common_drift(run: Run, course: TailCourse, since: int) -> Finding:
    effect = effect_of(course, course.contrasted, course.level.beyond)
    summary = (
        f"Since step {since} the tail grows after tool results and in text-only contexts alike: a drift that both "
        "share, as when the policy learns or the learning rate is high, and no sign of the tools. "
        f"{effect.growth_sentence()}"
    )
    return Finding(ID, "note", summary, (since, run.last_step), POST_TOOL, evidence=effect.rows())


def _note_of_far_tail(run: Run, course: TailCourse) -> Finding:
    """Say that the tail is far out all the same: it may have grown early, or before the log begins."""
    effect = effect_of(course, course.contrasted, course.level.beyond)
    summary = (
        f"After tool results, p99 of |log-ratio {course.pair}| is {effect.p99('late', POST_TOOL):.2f} nats, in "
        f"text-only contexts {effect.p99('late', TEXT_ONLY):.2f}. That it still grows is not certain: it was far out "
        "early, or it comes and goes."
    )
    steps = (course.contrasted[-LATEST_BLOCKS].first_step, run.last_step)
    bounds = f"A heuristic: p99 beyond {HARMFUL_P99:g} nats, and the tail at ×{FAR:g} of the text-only one or more."
    return Finding(ID, "note", summary, steps, POST_TOOL, evidence=effect.rows(), certainty=bounds)


def _note_of_text_only_growth(run: Run, course: TailCourse) -> Finding:
    effect = effect_of(course, course.contrasted, course.level.beyond)
    summary = (
        "The tail grows in text-only contexts and not after tool results: no sign of the tools. The updates, or the "
        f"prompts without tools, have changed. {effect.growth_sentence()}"
    )
    steps = (course.contrasted[-LATEST_BLOCKS].first_step, run.last_step)
    heuristic = "A heuristic: the level of the latest blocks against that of the first."
    return Finding(ID, "note", summary, steps, TEXT_ONLY, evidence=effect.rows(), certainty=heuristic)


def _without_contrast(run: Run, course: TailCourse) -> Finding:
    """Say what the post-tool level alone shows where text-only tokens are missing or too few."""
    assert course.alone is not None
    effect = effect_of(course, course.blocks, course.level.own, slices=(POST_TOOL,))
    return Finding(
        rule=ID,
        severity="warning" if course.lone_warning is not None else "note",
        slice=POST_TOOL,
        steps=(course.alone.last_step, run.last_step),
        summary=sentences(
            effect.growth_sentence(),
            effect.trend_sentence(),
            "Without enough text-only tokens to compare with, this may be ordinary learning, which moves all tails.",
        ),
        evidence=effect.rows(),
        certainty=(
            "Weak: judged by the post-tool level alone. A drift that all tokens share looks the same, as often as "
            "docs/detectors.md says."
        ),
        cause=_cause(course.pair) if course.lone_warning is not None else "",
        next_check="Add prompts that need no tool, so that text-only tokens show what ordinary learning does.",
    )


def _cause(pair: str) -> str:
    """Return what a growing post-tool tail of a pair speaks for: only the rollout's log-probabilities are another's."""
    return ENGINE_MISMATCH if pair in (OLD_ROLLOUT, POLICY_ROLLOUT) else SUPPORT_MISMATCH


def _too_little(run: Run, course: TailCourse) -> CannotJudge:
    usable = len(course.contrasted)
    if not course.blocks and _has_no_tool_results(run):
        return CannotJudge(ID, NO_TOOL_RESULTS, MARK_THEM)
    reason = f"{usable} blocks after the first {course.warm_up} steps can be judged, {ENOUGH_BLOCKS} are needed."
    if usable >= ENOUGH_BLOCKS:
        reason = f"None of the last {LATEST_BLOCKS} blocks can be compared with text-only tokens."
    elif course.unusable <= usable:
        return CannotJudge(ID, reason, "Train longer, or pass a smaller steps_per_block if blocks hold many tokens.")
    if course.enough(course.blocks):
        reason += " The post-tool level alone is judged instead, which ordinary learning moves too."
    return CannotJudge(ID, reason, f"In the last block that could not be, {course.why_unusable}.")


def _has_no_tool_results(run: Run) -> bool:
    """Say whether every block has counted its tokens after tool results, and found none."""
    return block_counts(run).total.get("post_tool_tokens") == 0


def _aggregates_then_and_now(then: Mapping[str, Change], now: Mapping[str, Change], alarm: int, warm_up: int) -> str:
    sentence = aggregate_sentence(then, warm_up)
    later = [name for name, change in now.items() if change.moved and name in then and not then[name].moved]
    return sentences(
        sentence and f"When that was certain, at step {alarm}: {sentence}.",
        "Moved later: " + ", ".join(f"{name} since step {now[name].since_step}" for name in later) + "."
        if later
        else "",
    )


def _certainty(course: TailCourse) -> str:
    level = threshold(course.steps_per_block, WARNING_STEPS)
    return (
        f"The evidence reached {course.highest:,.0f}. Without a change it reaches {level:,.0f} at most once per "
        f"{WARNING_STEPS:,} steps on average by its construction, and less often as measured."
    )


def _is_hidden(changes: Mapping[str, Change]) -> bool:
    return bool(changes) and not any(change.moved or change.reason for change in changes.values())


def _exclusions(effect: Effect, changes: Mapping[str, Change]) -> tuple[str, ...]:
    found = []
    if _is_hidden(changes):
        hidden = f"{HIDDEN[0].upper()}{HIDDEN[1:]}"
        found.append(f"{hidden}: at the alarm nothing had moved of {listed(list(changes))}, which do not show it.")
    if (text := effect.p99_growth(TEXT_ONLY)) < MINIMUM_GROWTH:
        found.append(f"The text-only tail is flat (×{text:.2f}): not the optimiser, which would move both slices.")
    return tuple(found)
