"""Overfitting: the evaluation gets worse while the training loss still falls.

What: ``eval_loss`` has risen from its lowest value, or an ``eval_`` accuracy has fallen from its highest, in each of
the last three evaluations and beyond their noise, while the training loss has fallen on.
Why it matters: from that step on the run learns its training data by heart. The best checkpoint lies behind.
Known problems: preference training lets the loss of an evaluation rise while its accuracy still improves; the accuracy
is then what counts, and a loss alone is a note. It needs five evaluations.
Example: "eval_loss has risen from 1.42 at step 400 to 1.61, while the training loss went on from 1.3 to 1.02."
Options: none.
References: Prechelt, "Early stopping, but when?" (1998).
"""

from __future__ import annotations

import math
import re

import numpy as np

from foreshock.rules.finding import RuleResult
from foreshock.rules.series import is_preference, rows_of
from foreshock.rules.statements import heuristic, one_finding
from foreshock.run import Run

ID = "overfitting"

NEEDS = "an eval_ loss or accuracy, five times; loss"

SEVERITIES = ("note", "warning")

LOSSES = re.compile(r"eval_(.*_)?loss")
ACCURACIES = re.compile(r"eval_(rewards/accuracies|mean_token_accuracy|accuracy)")

FEWEST, LASTING = 5, 3
"""Evaluations that are needed, and how many of the last must all be worse than the best."""

WORSE = 0.02
"""The same as a share of the best value (heuristic)."""

NOISES = 3.0
"""By how many times the median change between evaluations the last ones must be worse (heuristic)."""

CERTAINTY = heuristic(warned=0)


def check(run: Run) -> RuleResult:
    """Compare the last evaluations with the best one, then the training loss before and after it."""
    keys = [key for key in run.series if LOSSES.fullmatch(key) or ACCURACIES.fullmatch(key)]
    judged = [key for key in keys if rows_of(run, key)[1].size >= FEWEST]
    worse = [key for key in judged if (place := _turn(run, key)) is not None and _still_falls(run, key, place)]
    if not worse:
        return RuleResult(judged=(f"the evaluation does not turn ({', '.join(judged)})",) if judged else ())
    key = next((key for key in worse if ACCURACIES.fullmatch(key)), worse[0])
    steps, values = rows_of(run, key)
    place = _turn(run, key) or 0
    _, before, after = _training(run, int(steps[place]))
    return one_finding(
        run,
        ID,
        "note" if is_preference(run) and LOSSES.fullmatch(key) else "warning",
        int(steps[place]),
        f"{key} has gone from {values[place]:.3g} at step {steps[place]} to {values[-1]:.3g}, while the training loss "
        f"went on from {before:.3g} to {after:.3g}.",
        keys=("loss", *worse, "learning_rate"),
        certainty=CERTAINTY,
        exclusions=("The training loss still falls: the optimiser is well.",),
        advice=f"Take the checkpoint nearest to step {steps[place]}. Train for fewer epochs, or on more data.",
        next_check="Evaluate that checkpoint and the last one on the task itself.",
    )


def _turn(run: Run, key: str) -> int | None:
    """Return the place of the best evaluation when all of the last ones are worse by more than noise."""
    _, values = rows_of(run, key)
    loss = values if LOSSES.fullmatch(key) else -values
    best = loss.size - 1 - int(np.argmin(loss[::-1]))
    if best > loss.size - 1 - LASTING:
        return None
    noise = float(np.median(np.abs(np.diff(loss))))
    least = min(loss[-LASTING:]) - loss[best]
    turned = loss[-1] - loss[best] >= NOISES * noise and least > 0 and loss[-1] - loss[best] >= WORSE * abs(loss[best])
    return best if turned else None


def _still_falls(run: Run, key: str, place: int) -> bool:
    falls, _, _ = _training(run, int(rows_of(run, key)[0][place]))
    return falls


def _training(run: Run, step: int) -> tuple[bool, float, float]:
    """Return whether the training loss is lower after a step than around it, and both levels."""
    steps, loss = rows_of(run, "loss")
    cut = int(np.searchsorted(steps, step))
    if not loss.size:
        return False, math.nan, math.nan
    before, after = float(np.median(loss[max(cut - 10, 0) : max(cut, 10)])), float(np.median(loss[-10:]))
    return after < before, before, after
