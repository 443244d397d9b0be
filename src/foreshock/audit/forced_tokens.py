"""Forced tokens: token ids that are trained and that the policy could never have sampled.

What: a token id is trained many times, and nearly each time trainer or sampler gives it a log-probability below −10 or
none that is finite.
Why it matters: a chat template or a stop rule put it there. Its ratio explodes or is NaN, and the policy is trained on
a choice that it did not make.
Known problems: a policy can sample one such token now and then, but not each time; so it is judged from 20 times on.
Example: "Token 151645 is trained 420 times, and each time the policy held it for all but impossible."
Options: none.
References: none.
"""

from __future__ import annotations

from foreshock.audit.tally import IMPOSSIBLE, Tally
from foreshock.rules.cause_names import ENGINE_MISMATCH, MASK_ERROR
from foreshock.rules.finding import CannotJudge, Finding, RuleResult

ID = "audit-forced-tokens"

NEEDS = "a token dump with log-probabilities of sampler or trainer"

SEVERITIES = ("warning",)

FEWEST = 20
"""Times a token has to be trained before it is judged."""

ALWAYS = 0.95
"""Share of these at which it was all but impossible. A sampler would draw such a token once in 22,000 times."""

SHOWN = 8


def check(tally: Tally) -> RuleResult:
    """Name the token ids that are always impossible."""
    if tally.trainer is None and "rollout" not in tally.policies:
        return RuleResult(cannot_judge=(CannotJudge(ID, "the dump holds no log-probabilities."),))
    forced = {
        token: found
        for token, found in tally.tokens.items()
        if found.times >= FEWEST and found.impossible >= ALWAYS * found.times
    }
    if not forced:
        return RuleResult(judged=("no forced tokens",))
    ranked = sorted(forced.items(), key=lambda item: (-item[1].impossible, item[0]))
    token, most = ranked[0]
    beside = sum(found.beside for found in forced.values()) / sum(found.impossible for found in forced.values())
    more = f", and {len(forced) - 1} others likewise" if len(forced) > 1 else ""
    finding = Finding(
        rule=ID,
        severity="warning",
        summary=(
            f"Token {token} is trained {most.times:,} times, and {most.impossible:,} times the policy held it for all "
            f"but impossible{more}. {beside:.0%} of these stand beside a tool result."
        ),
        steps=tally.span(),
        tokens=tuple(
            {
                "token id": token,
                "trained": found.times,
                f"below {IMPOSSIBLE:.0f} nats": found.impossible,
                "of these beside a tool result": found.beside,
            }
            for token, found in ranked[:SHOWN]
        ),
        certainty="A sampler draws a token with a probability below 1 in 22,000 rarely, not nearly each time.",
        cause=ENGINE_MISMATCH,
        name=MASK_ERROR,
        advice="Take these tokens out of the loss mask: the template or a stop rule put them there, not the policy.",
        next_check="Decode the token id, and look in the chat template for where it is written.",
    )
    return RuleResult((finding,))
