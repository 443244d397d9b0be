"""No comparator: per-token log-ratios could not be recorded.

What: no block holds a pair of policies, so the tail cannot be judged.
Why it matters: silence of the tail rules means nothing on such a run.
Known problems: none; the rule only says what is missing and how to get it.
Example: "no reference, old or rollout log-probabilities exist, so there is no log-ratio to watch. Set beta > 0, train
with a PEFT adapter, or pass ref_model= to foreshock.watch."
Options: ``ref_model`` of ``foreshock.watch``.
References: docs/watching.md, which lists the pairs and when each exists.
"""

from __future__ import annotations

from foreshock.rules.finding import CannotJudge, RuleResult
from foreshock.run import Run

ID = "no-comparator"

NEEDS = "nothing"

SEVERITIES = ()

NO_COMPARATOR = "no reference, old or rollout log-probabilities exist, so there is no log-ratio to watch."
SET_ONE = "Set beta > 0, train with a PEFT adapter, or pass ref_model= to foreshock.watch."

NO_RECORDS = "this run holds logged scalars only, so the tails of its log-ratios cannot be judged."
WATCH_IT = "Watch the next one with foreshock.watch(trainer, run_dir=…)."


def check(run: Run) -> RuleResult:
    """Say that the tail cannot be judged when no pair was recorded, with the notice of the watch if there is one."""
    if run.pair is not None:
        return RuleResult()
    notice = run.notices.get(ID) or run.notices.get("no-token-records")
    if notice:
        return RuleResult(cannot_judge=(CannotJudge(ID, notice),))
    reason, remedy = (NO_COMPARATOR, SET_ONE) if run.blocks else (NO_RECORDS, WATCH_IT)
    return RuleResult(cannot_judge=(CannotJudge(ID, reason, remedy),))
