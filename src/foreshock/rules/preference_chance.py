"""Preference at chance: preference training has not learned to tell chosen from rejected.

What: after the warm-up ``rewards/margins`` stays near 0 and ``rewards/accuracies`` near one half; where no margin is
logged, the loss stays at log 2 = 0.693.
Why it matters: log 2 is the loss of a policy that has not moved from its reference. Swapped or equal pairs, a learning
rate near 0, or a reference that is trained along all look like this.
Known problems: a very small beta keeps margins small while the policy does move; the accuracies tell. Early in a long
run it may only be slow: 40 rows after the warm-up are asked for.
Example: "After 120 rows chosen and rejected are not told apart: rewards/margins is 0.0031, rewards/accuracies 0.51
(loss 0.692, log 2 is 0.693)."
Options: none.
References: Rafailov et al., "Direct preference optimization" (arXiv:2305.18290).
"""

from __future__ import annotations

import math

from foreshock.rules.cause_names import ZERO_SIGNAL
from foreshock.rules.finding import RuleResult
from foreshock.rules.series import Course, course
from foreshock.rules.statements import heuristic, one_finding
from foreshock.run import Run

ID = "preference-at-chance"

NEEDS = "rewards/margins or rewards/accuracies; loss"

SEVERITIES = ("warning",)

MARGIN, ACCURACY = "rewards/margins", "rewards/accuracies"

NO_MARGIN = 0.04
"""Margin up to which the loss of a pair, log 2 − margin / 2, is within 0.02 of log 2."""

NEAR_HALF = 0.1

CERTAINTY = heuristic(warned=0)


def check(run: Run) -> RuleResult:
    """Judge margins and accuracies; the loss where they are not logged."""
    margin, accuracy, loss = course(run, MARGIN), course(run, ACCURACY), course(run, "loss")
    if margin is None and accuracy is None:
        return RuleResult()
    judged = [each for each in (margin, accuracy) if each is not None]
    if not (_no_margin(margin, loss) and (accuracy is None or abs(accuracy.late.mean() - 0.5) <= NEAR_HALF)):
        return RuleResult(judged=(f"chosen and rejected are told apart ({', '.join(each.key for each in judged)})",))
    levels = ", ".join(f"{each.key} is {each.late.mean():.3g}" for each in judged)
    at_loss = f" (loss {loss.late_level:.3f}, log 2 is {math.log(2):.3f})" if loss is not None else ""
    return one_finding(
        run,
        ID,
        "warning",
        int(judged[0].steps[0]),
        f"After {judged[0].values.size} rows chosen and rejected are not told apart: {levels}{at_loss}.",
        keys=("loss", MARGIN, ACCURACY, "rewards/chosen", "rewards/rejected", "grad_norm", "learning_rate"),
        certainty=CERTAINTY,
        cause=ZERO_SIGNAL,
        advice="Check that chosen and rejected differ after truncation, and raise the learning rate or beta.",
        next_check="Print five pairs as they are tokenised: do they differ inside the length limit?",
    )


def _no_margin(margin: Course | None, loss: Course | None) -> bool:
    if margin is not None:
        return abs(float(margin.late.mean())) <= NO_MARGIN
    return loss is not None and abs(loss.late_level - math.log(2)) <= NO_MARGIN / 2
