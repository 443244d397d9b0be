"""Placeholder log-probabilities: trained tokens with exactly 0.0 where a log-probability should stand.

What: one policy gives a trained token a log-probability of exactly 0, which is certainty, and the other less than one
half; or a policy has nothing but zeros. Stretches of such tokens are left to the check of the mask.
Why it matters: such a token enters every ratio as if it were a difference between the policies. A few make a tail.
Known problems: a sampler that renormalises over one remaining token (greedy decoding, top-k of 1) is certain rightly.
Where trainer and sampler disagree that much in truth, the token is counted here too.
Example: "310 trained tokens (0.30%) have 0.0 in place of a log-probability."
Options: none.
References: none.
"""

from __future__ import annotations

from foreshock.audit.mask import is_inverted
from foreshock.audit.tally import TOKENS, Tally
from foreshock.rules.cause_names import ENGINE_MISMATCH, MASK_ERROR
from foreshock.rules.finding import CannotJudge, Finding, RuleResult

ID = "audit-placeholders"

NEEDS = "a token dump with log-probabilities of sampler and trainer"

SEVERITIES = ("note", "warning")

MANY = 0.001
"""Share of the trained tokens from which on this is a warning (heuristic): enough to be the p99.9 of a ratio."""


def check(tally: Tally) -> RuleResult:
    """Count trained tokens without a log-probability."""
    if is_inverted(tally):
        return RuleResult()
    empty = [name for name in sorted(tally.policies) if tally.share(f"zero/{name}") == 1]
    if empty:
        return RuleResult((_all_zero(tally, empty[0]),))
    if "rollout" not in tally.policies or tally.trainer is None:
        reason = "the dump holds the log-probabilities of one policy only, so that a 0 cannot be told from certainty."
        return RuleResult(cannot_judge=(CannotJudge(ID, reason, "Dump those of trainer and sampler."),))
    count = tally.total("unscored") - tally.total("stretches")  # stretches are the mask's fault
    share = count / tally.total(TOKENS)
    if not count:
        return RuleResult(judged=("no placeholder log-probabilities inside the mask",))
    finding = Finding(
        rule=ID,
        severity="warning" if share >= MANY else "note",
        summary=f"{count:,} trained tokens ({share:.2%}) have 0.0 in place of a log-probability.",
        steps=tally.span("unscored"),
        evidence=tuple(
            {"what": f"{name} exactly 0", "tokens": tally.total(f"zero/{name}"), "share": tally.share(f"zero/{name}")}
            for name in sorted(tally.policies)
        ),
        certainty="Counted; a 0 beside a trainer's probability under one half is taken for a placeholder (heuristic).",
        cause=ENGINE_MISMATCH if share >= MANY else "",
        name=MASK_ERROR,
        advice="Leave tokens without a log-probability out of the loss mask, or fill in the trainer's own value.",
        next_check="Look up three of these tokens in the sampler's output: does it hold a log-probability for them?",
    )
    return RuleResult((finding,))


def _all_zero(tally: Tally, policy: str) -> Finding:
    return Finding(
        rule=ID,
        severity="note" if policy != "rollout" else "warning",
        summary=(
            f"The {policy} log-probabilities of all {tally.total(TOKENS):,} trained tokens are 0.0: they were not "
            "computed, so that no pair with them can be judged."
        ),
        steps=tally.span(),
        certainty="Counted, not estimated: there is no false alarm.",
        advice=(
            "NeMo-RL writes zeros for prev_logprobs with force_on_policy_ratio; a sampler, when log-probabilities are "
            "not asked for. Turn them on to compare the policies."
        ),
        next_check="Look at the setting that computes them.",
    )
