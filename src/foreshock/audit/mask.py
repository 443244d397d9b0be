"""Loss mask: tokens are trained that the policy never sampled, or the mask is inverted.

What: the sampler's log-probability of a token is exactly 0 where it sampled nothing. Stretches of such tokens inside
the loss mask, to which the trainer gives less than one half, are tool results or user text that are trained. Where
nearly all trained tokens are so and the sampler scored the others, the mask is inverted.
Why it matters: the policy is pushed towards or away from what it never chose, and every ratio over the mask is wrong.
Known problems: it needs the sampler's log-probabilities. Observations that a sampler scores as well, as in prompts with
log-probabilities, cannot be told from what it sampled. Stretches shorter than three tokens are only placeholders.
Example: "12% of the trained tokens were never sampled: they stand in stretches without the sampler's log-probability."
Options: none.
References: none.
"""

from __future__ import annotations

from foreshock.audit.tally import TOKENS, Tally
from foreshock.rules.cause_names import ENGINE_MISMATCH, MASK_ERROR
from foreshock.rules.finding import CannotJudge, Finding, RuleResult

ID = "audit-mask"

NEEDS = "a token dump with log-probabilities of sampler and trainer"

SEVERITIES = ("warning", "critical")

NEARLY_ALL = 0.9
"""Share of trained tokens without a sampler's log-probability from which on the mask may be inverted (heuristic)."""

MANY, SOME = 0.01, 0.0001
"""Share of the trained tokens that were never sampled: critical, and a warning (heuristic)."""

NEXT_CHECK = "Print one trained row token by token beside its mask, and look at what stands between two calls."


def check(tally: Tally) -> RuleResult:
    """Judge the loss mask by what the sampler scored."""
    if "rollout" not in tally.policies or tally.trainer is None:
        missing = "no log-probabilities of the sampler" if tally.trainer else "no log-probabilities of the trainer"
        return RuleResult(cannot_judge=(CannotJudge(ID, f"the dump holds {missing}.", "Dump both."),))
    if is_inverted(tally):
        summary = (
            f"The loss mask looks inverted: {tally.share('zero/rollout'):.0%} of the trained tokens were never "
            f"sampled, while {tally.total('scored outside'):,} tokens outside the mask were."
        )
        return _found(tally, "critical", summary, TOKENS)
    share = tally.share("stretches")
    if share < SOME:
        return RuleResult(judged=("no trained observation tokens (rollout log-probabilities)",))
    summary = (
        f"{share:.2%} of the trained tokens were never sampled: they stand in stretches without the sampler's "
        "log-probability, as tool results and user text do."
    )
    return _found(tally, "critical" if share >= MANY else "warning", summary, "stretches")


def is_inverted(tally: Tally) -> bool:
    """Say whether the sampler scored what is not trained, and hardly anything that is."""
    unscored = tally.share("zero/rollout")
    return unscored >= NEARLY_ALL and tally.total("scored outside") > tally.total(TOKENS) * (1 - unscored)


def _found(tally: Tally, severity: str, summary: str, counter: str) -> RuleResult:
    row = {
        "trained tokens": tally.total(TOKENS),
        "of these scored 0": tally.total("zero/rollout"),
        "in stretches": tally.total("stretches"),
        "observation tokens": tally.total("observation_tokens"),
        "sampled outside the mask": tally.total("scored outside"),
    }
    finding = Finding(
        rule=ID,
        severity=severity,
        summary=summary,
        steps=tally.span(counter),
        evidence=tuple({"what": what, "tokens": count} for what, count in row.items()),
        certainty="Counted; that these tokens are no samples rests on the sampler's zeros (heuristic).",
        cause=ENGINE_MISMATCH,
        name=MASK_ERROR,
        advice="Correct how the loss mask is built before training on: only what the policy sampled may be trained.",
        next_check=NEXT_CHECK,
    )
    return RuleResult((finding,))
