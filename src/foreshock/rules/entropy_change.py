"""Entropy change: the entropy collapses or explodes, and a second sign supports it.

What: the entropy stays below half of its early level, or above its double, and something else went wrong with it.
Why it matters: a policy without entropy explores nothing, and its groups soon have equal rewards; one whose entropy
explodes writes gibberish.
Known problems: a falling entropy alone is ordinary learning. On 33 public sibling runs, "below half" alone had 15
false alarms, so alone it is a note. Entropies are not comparable between models; only the run's own early level
counts.
Example: "The entropy has fallen from 0.56 to 0.05 nats (×0.09), over half of the way since step 120. Beside it: 62%
more groups with equal rewards."
Options: none.
References: Cui et al., "The entropy mechanism of reinforcement learning for reasoning language models"
(arXiv:2505.22617); Yu et al., "DAPO" (arXiv:2503.14476), for the higher upper clip bound.
"""

from __future__ import annotations

from foreshock.rules.cause_names import ENTROPY_COLLAPSE, OPTIMISER
from foreshock.rules.finding import RuleResult
from foreshock.rules.series import Course, course, direction
from foreshock.rules.statements import heuristic, is_near, one_finding, reward_sentence, time_sentence
from foreshock.run import Run

ID = "entropy-change"

NEEDS = "entropy"

SEVERITIES = ("note", "warning", "critical")

HALF, DOUBLE = 0.5, 2.0
"""Late over early level: below the first is a collapse, above the second an explosion (heuristic)."""

FAR_BELOW, FAR_ABOVE = 0.2, 4.0
"""Beyond these, or near 0, the finding is critical once the reward has fallen with it (heuristic)."""

SHARE_RISE = 0.2
"""Rise of the zero-std groups or of the completions at the cap that counts as a second sign (heuristic)."""

SMALLEST = 1e-3
"""Early entropy, in nats, below which there is nothing to halve."""

EVIDENCE = ("entropy", "reward", "reward_std", "frac_reward_zero_std", "completions/clipped_ratio", "kl")

CERTAINTY = heuristic(warned=0)


def check(run: Run) -> RuleResult:
    """Compare the late entropy with the early one, and look for a second sign."""
    entropy = course(run, "entropy")
    if entropy is None or entropy.early_level < SMALLEST:
        return RuleResult()
    fallen = entropy.growth <= HALF
    middle = ((HALF if fallen else DOUBLE) + 1) / 2 * entropy.early_level
    beyond = entropy.late < middle if fallen else entropy.late > middle
    # A few rows alone make no collapse.
    if HALF < entropy.growth < DOUBLE or beyond.mean() < 0.9 or entropy.direction == "flat":
        return RuleResult(judged=("no collapse or explosion of the entropy (entropy)",))
    return _result(run, entropy, ENTROPY_COLLAPSE if fallen else OPTIMISER, _signs(run))


def _signs(run: Run) -> tuple[str, ...]:
    """Return the second signs, one sentence part each. A reward that rises explains equal groups: no sign then."""
    went, found = direction(run), []
    if went == "down":
        found.append("the reward has fallen")
    if went == "flat":
        found.append("the reward has not risen")
    for key, words in (
        ("frac_reward_zero_std", "groups with equal rewards"),
        ("completions/clipped_ratio", "completions cut off at the length limit"),
    ):
        share = course(run, key)
        if share is not None and share.rise >= SHARE_RISE and share.direction == "up" and went != "up":
            found.append(f"{share.rise:.0%} more {words}")
    return tuple(found)


def _result(run: Run, entropy: Course, cause: str, signs: tuple[str, ...]) -> RuleResult:
    fallen = cause == ENTROPY_COLLAPSE
    near = fallen and is_near(entropy, 0.0)
    far = near or entropy.growth <= FAR_BELOW or entropy.growth >= FAR_ABOVE
    since = entropy.since
    return one_finding(
        run,
        ID,
        "note" if not signs else "critical" if far and direction(run) == "down" else "warning",
        since,
        f"The entropy has {'fallen' if fallen else 'risen'} from {entropy.early_level:.3g} to {entropy.late_level:.3g} "
        f"nats (×{entropy.growth:.2f}), over half of the way since step {since}.",
        time_sentence(entropy, 0.0, "0") if fallen else "",
        f"Beside it: {', '.join(signs)}."
        if signs
        else "Nothing else went wrong with it, so this may be ordinary learning.",
        reward_sentence(run),
        keys=EVIDENCE,
        first=int(entropy.steps[0]),
        certainty=CERTAINTY,
        cause=cause,
        advice=(
            "Raise the sampling temperature or the upper clip bound, add prompts, or go back to an earlier checkpoint."
            if fallen
            else "Go back to a checkpoint from before this step and lower the learning rate."
        ),
        next_check=(
            "Count distinct completions in a group of the latest step."
            if fallen
            else "Read five completions of the latest step: are they still language?"
        ),
    )
