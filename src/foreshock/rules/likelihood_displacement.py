"""Likelihood displacement: chosen answers become less likely, together with the rejected ones.

What: ``logps/chosen`` and ``logps/rejected`` have both fallen from their first level.
Why it matters: the margin may grow and the loss fall while the policy forgets how to write either answer. The mass
goes to texts that nobody chose.
Known problems: some fall is usual in DPO and mostly harmless, so it is a note. It is a warning when the chosen answers
have lost half of their log-probability again, or while the accuracies do not rise. Sums over tokens grow with the
length of the data.
Example: "logps/chosen has fallen from -182 to -391 nats and logps/rejected from -201 to -520 since step 140."
Options: none.
References: Razin et al., "Unintentional unalignment: likelihood displacement in direct preference optimization"
(arXiv:2410.08847); Pal et al., "Smaug: fixing failure modes of preference optimisation with DPO-Positive"
(arXiv:2402.13228).
"""

from __future__ import annotations

from foreshock.rules.cause_names import OPTIMISER
from foreshock.rules.finding import RuleResult
from foreshock.rules.series import course, direction
from foreshock.rules.statements import heuristic, one_finding
from foreshock.run import Run

ID = "likelihood-displacement"

NEEDS = "logps/chosen and logps/rejected"

SEVERITIES = ("note", "warning")

CHOSEN, REJECTED, ACCURACY = "logps/chosen", "logps/rejected", "rewards/accuracies"

FAR = 1.5
"""Late over early log-probability of the chosen answers from which on it is a warning (heuristic)."""

CERTAINTY = heuristic(warned=1)


def check(run: Run) -> RuleResult:
    """Compare the late log-probabilities of both answers with the first ones."""
    chosen, rejected = course(run, CHOSEN, warm_up=False), course(run, REJECTED, warm_up=False)
    if chosen is None or rejected is None:
        return RuleResult()
    if chosen.direction != "down" or rejected.direction != "down" or chosen.early_level >= 0:
        return RuleResult(judged=(f"chosen answers stay likely ({CHOSEN})",))
    growth = chosen.late_level / chosen.early_level
    since = chosen.since
    worse = growth >= FAR or direction(run, ACCURACY) in ("flat", "down")
    return one_finding(
        run,
        ID,
        "warning" if worse else "note",
        since,
        f"{CHOSEN} has fallen from {chosen.early_level:.4g} to {chosen.late_level:.4g} nats and {REJECTED} from "
        f"{rejected.early_level:.4g} to {rejected.late_level:.4g} since step {since}.",
        "" if worse else f"{ACCURACY} rises meanwhile, so this may be the usual course.",
        keys=(CHOSEN, REJECTED, "rewards/margins", ACCURACY, "loss", "nll_loss"),
        certainty=CERTAINTY,
        cause=OPTIMISER,
        advice="Add a likelihood term on the chosen answers (NLL), raise beta, or lower the learning rate.",
        next_check="Let the latest checkpoint answer ten prompts: is it still language, and to the point?",
    )
