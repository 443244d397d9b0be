"""Dead run: nothing that training needs has happened since the first logs.

What: ``reward``, ``reward_std`` and ``grad_norm`` are exactly 0 in the latest rows; or, in a run without a reward, the
loss is the same number in every row.
Why it matters: the rollouts, or the data, are broken. Every further step is wasted, and often nothing raises an error.
Known problems: it needs five rows over twenty steps. A loss that a logger rounds to one decimal looks dead too.
Example: "Reward, reward_std and grad_norm are exactly 0 in the latest rows, nearly always since step 1: the run is
dead."
Options: none.
References: none beyond public reports of runs with reward 0, gradient 0 and every completion at the length limit.
"""

from __future__ import annotations

import numpy as np

from foreshock.rules.cause_names import ENVIRONMENT, NUMERICS
from foreshock.rules.finding import RuleResult
from foreshock.rules.series import SHORTEST, held_since, latest, rows_of
from foreshock.rules.statements import one_finding
from foreshock.run import Run

ID = "dead-run"

NEEDS = "reward, reward_std and grad_norm; or loss in a run without a reward"

SEVERITIES = ("critical",)

NEEDED = ("reward", "reward_std", "grad_norm")

CERTAINTY = "Counted, not estimated: numbers that are exactly equal are no noise."


def is_dead(run: Run) -> bool:
    """Say whether the reward, its spread and the gradient are all exactly 0 in the latest rows."""
    return all(values.size and not values.any() for _, values in (latest(run, key) for key in NEEDED))


def check(run: Run) -> RuleResult:
    """Look for a reward without any value, or a loss without any change."""
    if is_dead(run):
        steps, reward = rows_of(run, "reward")
        since = held_since(steps, reward == 0)
        return one_finding(
            run,
            ID,
            "critical",
            since,
            f"Reward, reward_std and grad_norm are exactly 0 in the latest rows, nearly always since step {since}: the "
            "run is dead.",
            keys=(*NEEDED, "loss", "completions/mean_length", "completions/clipped_ratio"),
            certainty=CERTAINTY,
            cause=ENVIRONMENT,
            advice="Stop the run and look at the rollouts: are completions empty or cut off, does the reward raise?",
            next_check="Print one completion of the latest step with the reward function's return value for it.",
        )
    steps, loss = rows_of(run, "loss")
    if "reward" in run.series or loss.size < SHORTEST:
        return RuleResult()
    if np.ptp(loss) > 0:
        return RuleResult(judged=("the loss changes (loss)",))
    return one_finding(
        run,
        ID,
        "critical",
        int(steps[0]),
        f"The loss is exactly {loss[0]:.6g} in all {loss.size} rows: nothing is being trained.",
        keys=("loss", "grad_norm", "learning_rate"),
        certainty=CERTAINTY,
        cause=NUMERICS,
        advice="Check that parameters require gradients, that not all labels are masked, and that there is data.",
        next_check="Count the unmasked labels of one batch, and look at one parameter before and after a step.",
    )
