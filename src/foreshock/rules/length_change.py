"""Length change: completions have become much shorter, or much longer, and the reward has not gained by it.

What: ``completions/mean_length`` is half, or twice, its level after the warm-up. A note while the reward has not moved,
a warning when the reward has fallen.
Why it matters: answers that shrink to a few words, or run on, are an early form of collapse, and the mean reward can
hide it for long where most of it is paid for form.
Known problems: harder prompts are answered at more length, and a length penalty is meant to shorten. Where the reward
rose meanwhile nothing is said, since reasoning may simply have grown. What runs into the length limit has another rule.
Example: "The mean completion length has fallen from 212 to 64 tokens (×0.30), over half of it since step 240. The
reward has fallen meanwhile (0.52 at steps 43–72, 0.31 in the last rows)."
Options: none.
References: none beyond public reports of runs whose answers shrank, or ran on, before the reward fell.
"""

from __future__ import annotations

from foreshock.rules.cause_names import LENGTH_COLLAPSE
from foreshock.rules.finding import RuleResult
from foreshock.rules.series import course, direction, latest
from foreshock.rules.statements import heuristic, one_finding, reward_sentence
from foreshock.run import Run

ID = "length-change"

NEEDS = "completions/mean_length; reward"

SEVERITIES = ("note", "warning")

LENGTH, CAPPED = "completions/mean_length", "completions/clipped_ratio"

FALLEN, GROWN = 0.5, 2.0
"""Level over the level after the warm-up from which on the change is said (heuristics)."""

CERTAINTY = heuristic(warned=0)


def check(run: Run) -> RuleResult:
    """Compare the length of completions with that after the warm-up, and with what the reward did."""
    length = course(run, LENGTH)
    if length is None or not length.early_level > 0:
        return RuleResult()
    reward = direction(run)
    changed = (length.growth <= FALLEN or length.growth >= GROWN) and length.direction != "flat"
    if not changed or reward == "up" or (length.growth > 1 and _is_capped(run)):
        return RuleResult(judged=(f"completions keep their length, or the reward gains by it ({LENGTH})",))
    return one_finding(
        run,
        ID,
        "warning" if reward == "down" else "note",
        length.since,
        f"The mean completion length has {'fallen' if length.growth < 1 else 'grown'} from {length.early_level:.3g} to "
        f"{length.late_level:.3g} tokens (×{length.growth:.2f}), over half of it since step {length.since}.",
        reward_sentence(run),
        keys=(LENGTH, "reward", CAPPED, "entropy"),
        certainty=CERTAINTY,
        cause=LENGTH_COLLAPSE,
        advice=(
            "Read completions of an early and of the latest step side by side. Look for a reward that pays for length, "
            "or for brevity, and at the data if prompts of another kind came in."
        ),
        next_check="Give ten prompts to an early and to the latest checkpoint: does the difference in length remain?",
    )


def _is_capped(run: Run) -> bool:
    """Say whether half of the completions run into the length limit, of which there is another rule."""
    _, capped = latest(run, CAPPED)
    return bool(capped.size and 0.5 <= capped.mean() <= 1)
