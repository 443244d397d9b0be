"""Re-tokenisation: after tool results the trainer scores other tokens than were sampled, from the first step on.

What: in the first steps of a dump, far more tokens after tool results than before them differ between trainer and
sampler by more than half a nat.
Why it matters: when a history is decoded and encoded again, token boundaries move. The trainer then scores a text that
the policy did not sample in this form, and its ratios there are noise.
Known problems: it cannot tell re-tokenisation from another fault that begins with the first tool result, such as a chat
template that rewrites earlier turns. A dump that begins late cannot say what was so from the start.
Example: "From the first step on, 6.1% of the tokens after tool results differ by over 0.5 nats, of those before 0.02%."
Options: none.
References: none.
"""

from __future__ import annotations

from foreshock.audit.tally import EARLY_STEPS, Tally
from foreshock.batch import POST_TOOL, TEXT_ONLY
from foreshock.rules.cause_names import ENGINE_MISMATCH, RETOKENISATION
from foreshock.rules.finding import CannotJudge, Finding, RuleResult
from foreshock.sketch import LogRatioSketch

ID = "audit-retokenisation"

NEEDS = "the first steps of a token dump with log-probabilities of sampler and trainer"

SEVERITIES = ("warning",)

APART = 0.5
"""Nats of |log-ratio| from which on trainer and sampler do not score the same thing (heuristic)."""

MANY, TIMES = 0.01, 10
"""The share of post-tool tokens apart, and how many times that of text-only tokens, for a warning (heuristic)."""

FEWEST = 500
"""Tokens of each slice below which a share of 1 % says nothing."""

LATEST_START = 10
"""First step of a dump up to which its start is taken for the start of the run."""


def check(tally: Tally) -> RuleResult:
    """Compare trainer and sampler by slice in the first steps."""
    if not tally.early:
        reason = "the dump holds no pair of trainer and sampler, whose difference after tool results would show it."
        return RuleResult(cannot_judge=(CannotJudge(ID, reason, "Dump the log-probabilities of both."),))
    if not tally.total("post_tool_tokens"):
        return RuleResult()  # nothing was said after a tool result, so that there is no question
    sketch = LogRatioSketch.merged(tally.early.values())
    first, last = min(tally.early), max(tally.early)
    fewest = min(sketch.n(name) for name in (TEXT_ONLY, POST_TOOL))
    if first > LATEST_START or fewest < FEWEST:
        reason = (
            f"the dump begins at step {first}, so that it does not show what was so from the start."
            if first > LATEST_START
            else f"the first {EARLY_STEPS} steps hold only {fewest} tokens of a slice, {FEWEST} are needed."
        )
        return RuleResult(cannot_judge=(CannotJudge(ID, reason, "Dump the first steps of a run."),))
    text, post = (sketch.tail_mass(APART, name).value for name in (TEXT_ONLY, POST_TOOL))
    if post < MANY or post < TIMES * text:
        return RuleResult(judged=("no gap after tool results in the first steps",))
    finding = Finding(
        rule=ID,
        severity="warning",
        slice=POST_TOOL,
        summary=(
            f"From the first step on, {post:.2%} of the tokens after tool results differ between trainer and sampler "
            f"by over {APART} nats, of those before them {text:.2%}."
        ),
        steps=(first, last),
        evidence=tuple(
            {
                "slice": name,
                "tokens": sketch.n(name),
                "apart": sketch.tail_mass(APART, name).value,
                "p50": sketch.quantile(0.5, name).value,
                "p99": sketch.quantile(0.99, name).value,
            }
            for name in (TEXT_ONLY, POST_TOOL)
        ),
        certainty="Its levels are heuristics.",
        cause=ENGINE_MISMATCH,
        name=RETOKENISATION,
        exclusions=("The text-only tokens agree: not the engine's kernels, which would part them too.",),
        advice="Keep the sampled token ids through all turns; do not decode and encode the history again.",
        next_check=(
            "Compare the token ids that were sampled with those that are trained, turn by turn: any difference after "
            "a tool result is re-tokenisation."
        ),
    )
    return RuleResult((finding,))
