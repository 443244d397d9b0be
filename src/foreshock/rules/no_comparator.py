"""No comparator: per-token log-ratios could not be recorded.

What: no block holds a pair of policies, so the tail cannot be judged.
Why it matters: silence of the tail rules means nothing on such a run.
Known problems: none; the rule only says what is missing and how to get it. Supervised fine-tuning has no second
policy, so there it asks for 20 rows of the loss instead.
Example: "no reference, old or rollout log-probabilities exist, so there is no log-ratio to watch. Set beta > 0, train
with a PEFT adapter, or pass ref_model= to foreshock.watch."
Options: ``ref_model`` of ``foreshock.watch``.
References: docs/watching.md, which lists the pairs and when each exists.
"""

from __future__ import annotations

from foreshock.rules.finding import CannotJudge, RuleResult
from foreshock.rules.series import SHORTEST, is_preference, rows_of
from foreshock.run import Run

ID = "no-comparator"

NEEDS = "nothing"

SEVERITIES = ()

NO_COMPARATOR = "no reference, old or rollout log-probabilities exist, so there is no log-ratio to watch."
SET_ONE = "Set beta > 0, train with a PEFT adapter, or pass ref_model= to foreshock.watch."

TOO_SHORT = "the log holds {rows} finite rows of the loss, {needed} are needed."
TRAIN_LONGER = "Train longer, or log more often."

NO_RECORDS = "this run holds logged scalars only, so the tails of its log-ratios cannot be judged."
WATCH_IT = "Watch the next one with foreshock.watch(trainer, run_dir=…)."


def check(run: Run) -> RuleResult:
    """Say that the tail cannot be judged when no pair was recorded, with the notice of the watch if there is one."""
    if run.pair is not None:
        return RuleResult()
    notice = run.notices.get(ID) or run.notices.get("no-token-records")
    if notice:
        return RuleResult(cannot_judge=(CannotJudge(ID, notice),))
    if _is_supervised(run):
        rows = rows_of(run, "loss")[1].size
        gap = CannotJudge(ID, TOO_SHORT.format(rows=rows, needed=SHORTEST), TRAIN_LONGER)
        return RuleResult(cannot_judge=(gap,) if rows < SHORTEST else ())
    reason, remedy = (NO_COMPARATOR, SET_ONE) if run.blocks else (NO_RECORDS, WATCH_IT)
    return RuleResult(cannot_judge=(CannotJudge(ID, reason, remedy),))


def _is_supervised(run: Run) -> bool:
    """Say whether a log of scalars is one of supervised fine-tuning: a loss, no reward, no preference, no rollouts."""
    others = ("reward", "kl", "completions/mean_length")
    return "loss" in run.series and not (run.blocks or is_preference(run) or any(key in run.series for key in others))
