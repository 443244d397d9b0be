"""Margin collapse: what tells chosen from rejected was learned, and is being lost.

What: ``rewards/margins`` has fallen to half of its middle level or less, and ``rewards/accuracies`` has fallen with
it.
Why it matters: the policy moves back, or both answers fall together; the checkpoint in the middle was better.
Known problems: margins alone vary with the data; without accuracies (KTO logs none) it is a note. Online DPO draws its
own pairs, and they become alike as it learns: margins fall then by nature, so it is a note there too.
Example: "rewards/margins has fallen from 0.92 to 0.31 since step 260, and rewards/accuracies from 0.81 to 0.64."
Options: none.
References: Rafailov et al., "Direct preference optimization" (arXiv:2305.18290); Guo et al., "Direct language model
alignment from online AI feedback" (arXiv:2402.04792).
"""

from __future__ import annotations

import numpy as np

from foreshock.detect.series_change import MINIMUM_BASELINE, Change, series_change
from foreshock.rules.cause_names import OPTIMISER
from foreshock.rules.finding import RuleResult
from foreshock.rules.series import Course, course
from foreshock.rules.statements import heuristic, one_finding
from foreshock.run import Run

ID = "margin-collapse"

NEEDS = "rewards/margins; rewards/accuracies"

SEVERITIES = ("note", "warning")

MARGIN, ACCURACY = "rewards/margins", "rewards/accuracies"

LOST = 0.5
"""Late over middle margin (heuristic)."""

ACCURACY_LOST = 0.05

FEWEST = 90

CERTAINTY = heuristic(warned=0)


def check(run: Run) -> RuleResult:
    """Compare the end of the run with its second third."""
    margin, accuracy = course(run, MARGIN, warm_up=False), course(run, ACCURACY, warm_up=False)
    if margin is None or margin.values.size < FEWEST:
        return RuleResult()
    change = _since_the_middle(margin)
    middle = _middle(margin)
    if not change.moved or middle <= 0 or margin.late_level > LOST * middle:
        return RuleResult(judged=(f"the margin holds ({MARGIN})",))
    fell = accuracy is not None and _since_the_middle(accuracy).moved
    if accuracy is not None and not (fell and _middle(accuracy) - accuracy.late_level >= ACCURACY_LOST):
        return RuleResult(judged=(f"the accuracies hold ({ACCURACY})",))
    since = change.since_step or run.last_step
    told = f", and {ACCURACY} from {_middle(accuracy):.2f} to {accuracy.late_level:.2f}" if accuracy is not None else ""
    return one_finding(
        run,
        ID,
        "note" if accuracy is None or "reward" in run.series else "warning",
        since,
        f"{MARGIN} has fallen from {middle:.3g} to {margin.late_level:.3g} since step {since}{told}.",
        keys=(MARGIN, ACCURACY, "rewards/chosen", "rewards/rejected", "loss", "grad_norm"),
        certainty=CERTAINTY,
        cause=OPTIMISER,
        advice="Go back to a checkpoint from before this step; lower the learning rate.",
        next_check="Evaluate the accuracy of both checkpoints on held-out pairs.",
    )


def _middle(series: Course) -> float:
    return float(np.median(np.array_split(series.values, 3)[1]))


def _since_the_middle(series: Course) -> Change:
    third = series.values.size // 3
    last = max(2 * third - 1, third + MINIMUM_BASELINE - 1)
    return series_change(series.steps, series.values, (int(series.steps[third]), int(series.steps[last])))
