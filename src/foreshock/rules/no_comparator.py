"""No comparator: per-token log-ratios could not be recorded.

What: no block holds a pair of policies, so the tail cannot be judged.
Why it matters: silence of the tail rules means nothing on such a run.
Known problems: none; the rule only says what is missing and how to get it. Training on given data, by labels or
preferences, samples nothing: a log with a positive loss and without a reward or rollouts is asked for 40 rows of that
loss instead.
Example: "no reference, old or rollout log-probabilities exist, so there is no log-ratio to watch. Set beta > 0, train
with a PEFT adapter, or pass ref_model= to foreshock.watch."
Options: ``ref_model`` of ``foreshock.watch``.
References: docs/watching.md, which lists the pairs and when each exists.
"""

from __future__ import annotations

from foreshock.rules.finding import CannotJudge, RuleResult
from foreshock.rules.series import is_preference, rows_of
from foreshock.run import Run

ID = "no-comparator"

NEEDS = "nothing"

SEVERITIES = ()

NO_COMPARATOR = "no reference, old or rollout log-probabilities exist, so there is no log-ratio to watch."
SET_ONE = "Set beta > 0, train with a PEFT adapter, or pass ref_model= to foreshock.watch."

ENOUGH_ROWS = 40
"""Rows of the loss below which silence of the other rules means nothing."""

TOO_SHORT = "the log holds {rows} finite rows of the loss, {needed} are needed."
TRAIN_LONGER = "Train longer, or log more often."

NO_RECORDS = "this run holds logged scalars only, so the tails of its log-ratios cannot be judged."
NO_ROWS = "this run holds no logged value at all."
FEW_ROWS = NO_RECORDS + " No key has more than {rows} finite values; most rules need {needed}."
KNOWN_KEYS = ("loss", "reward", "entropy", "kl", "grad_norm")
UNKNOWN_KEYS = f"{NO_RECORDS} Of {', '.join(KNOWN_KEYS)} it logs none."
WATCH_IT = "Watch the next one with foreshock.watch(trainer, run_dir=…)."


def check(run: Run) -> RuleResult:
    """Say that the tail cannot be judged when no pair was recorded, with the notice of the watch if there is one."""
    if run.pair is not None:
        return RuleResult()
    notice = run.notices.get(ID) or run.notices.get("no-token-records")
    if notice:
        return RuleResult(cannot_judge=(CannotJudge(ID, notice),))
    _, loss = rows_of(run, "loss")
    if loss.size and loss.min() > 0 and not _has_rollouts(run):
        gap = CannotJudge(ID, TOO_SHORT.format(rows=loss.size, needed=ENOUGH_ROWS), TRAIN_LONGER)
        return RuleResult(cannot_judge=(gap,) if loss.size < ENOUGH_ROWS else ())
    reason, remedy = (NO_COMPARATOR, SET_ONE) if run.blocks else (_without_records(run), WATCH_IT)
    return RuleResult(cannot_judge=(CannotJudge(ID, reason, remedy),))


def _without_records(run: Run) -> str:
    """Say what a run without token records holds too little of."""
    rows = max((rows_of(run, key)[1].size for key in run.series), default=0)
    if not run.series:
        return NO_ROWS
    if rows < ENOUGH_ROWS:
        return FEW_ROWS.format(rows=rows, needed=ENOUGH_ROWS)
    return NO_RECORDS if any(key in run.series for key in KNOWN_KEYS) else UNKNOWN_KEYS


def _has_rollouts(run: Run) -> bool:
    """Say whether anything in a run speaks of completions that the policy sampled."""
    signs = ("reward", "completions/mean_length") if is_preference(run) else ("reward", "completions/mean_length", "kl")
    return bool(run.blocks) or any(key in run.series for key in signs)
