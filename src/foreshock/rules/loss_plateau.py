"""Loss plateau: the loss has stopped falling while the learning rate is still high. A note, never more.

What: in a run without a reward the loss fell at first, and its last two quarters are equal to within half a per cent.
Why it matters: more steps of the same kind add little.
Known problems: a plateau is the normal end of training. It is said, and changes no verdict. With a learning rate that
has decayed below a tenth nothing is said.
Example: "The loss fell from 2.31 to 1.42 and has stayed there since about step 600."
Options: none.
References: none.
"""

from __future__ import annotations

import numpy as np

from foreshock.rules.finding import RuleResult
from foreshock.rules.series import even_rows, rows_of
from foreshock.rules.statements import one_finding
from foreshock.run import Run

ID = "loss-plateau"

NEEDS = "loss, in a run without a reward"

SEVERITIES = ("note",)

LONG = 200
"""Rows of the loss that are needed."""

FELL, STILL = 0.1, 0.005
"""Fall of the loss to its third quarter, and change to its last one, as shares (heuristics)."""

LOW_RATE = 0.1
"""Share of the largest learning rate below which a plateau is the schedule's."""


def check(run: Run) -> RuleResult:
    """Compare the quarters of the loss."""
    steps, loss = even_rows(run, "loss")
    if "reward" in run.series or loss.size < LONG or loss.min() <= 0:
        return RuleResult()
    first, _, third, last = (float(part.mean()) for part in np.array_split(loss, 4))
    _, rate = rows_of(run, "learning_rate")
    decayed = rate.size > 0 and rate[-1] < LOW_RATE * rate.max()
    if first - third < FELL * first or abs(last - third) > STILL * third or decayed:
        return RuleResult()
    return one_finding(
        run,
        ID,
        "note",
        int(steps[loss.size // 2]),
        f"The loss fell from {float(loss[:10].mean()):.3g} to {third:.3g} and has stayed there since about step "
        f"{steps[loss.size // 2]}.",
        keys=("loss", "learning_rate", "grad_norm", "eval_loss"),
        certainty="A note: a plateau is the normal end of training.",
        advice="Stop here, lower the learning rate, or change the data.",
        next_check="Does the evaluation still improve?",
    )
