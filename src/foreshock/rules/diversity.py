"""Diversity collapse: completions have become alike.

What: the spread of the lengths of a batch, (longest − shortest) / mean, has fallen to a small part of its early level,
and the entropy or the spread of the rewards fell with it.
Why it matters: completions of one length with one reward are usually one text. Groups of them teach nothing, and the
way back is hard.
Known problems: lengths are a stand-in: texts may differ at the same length. Completions that are all at the cap have
no spread either, so nothing is said then. A task with one right short answer ends here by design while the reward
rises.
Example: "The spread of completion lengths has fallen from 1.4 to 0.11 of the mean length since step 160. Beside it:
the entropy has fallen."
Options: none.
References: Kirk et al., "Understanding the effects of RLHF on LLM generalisation and diversity" (arXiv:2310.06452).
"""

from __future__ import annotations

import numpy as np

from foreshock.rules.cause_names import REWARD_HACKING
from foreshock.rules.finding import RuleResult
from foreshock.rules.series import Course, course, direction, latest
from foreshock.rules.statements import heuristic, one_finding, reward_sentence
from foreshock.run import Run

ID = "diversity-collapse"

NEEDS = "completions/min_length, completions/mean_length, completions/max_length; entropy or reward_std"

SEVERITIES = ("warning",)

SHORTEST_KEY, MEAN_KEY, LONGEST_KEY = "completions/min_length", "completions/mean_length", "completions/max_length"

SMALL = 0.25
"""Late over early spread (heuristic)."""

AT_THE_CAP = 0.5
"""Share of completions that are cut off from which on lengths say nothing of texts."""

SIGNS = {"entropy": "the entropy has fallen", "reward_std": "the spread of the rewards has fallen"}

CERTAINTY = heuristic(warned=0)


def check(run: Run) -> RuleResult:
    """Compare the late spread of the lengths with the early one, and look for a second sign."""
    courses = [course(run, key) for key in (SHORTEST_KEY, MEAN_KEY, LONGEST_KEY)]
    _, clipped = latest(run, "completions/clipped_ratio")
    if clipped.size and clipped.mean() >= AT_THE_CAP:
        return RuleResult()
    shortest, mean, longest = courses
    if shortest is None or mean is None or longest is None or mean.values.min() <= 0:
        return RuleResult()
    early, late = _spread(shortest, mean, longest, "early"), _spread(shortest, mean, longest, "late")
    signs = [words for key, words in SIGNS.items() if direction(run, key) == "down"]
    if early <= 0 or late > SMALL * early or direction(run) == "up" or not signs:
        return RuleResult(judged=("completions keep their spread of lengths (completions/*_length)",))
    since = (longest if longest.change.moved else shortest).since
    return one_finding(
        run,
        ID,
        "warning",
        since,
        f"The spread of completion lengths has fallen from {early:.2g} to {late:.2g} of the mean length since step "
        f"{since}. Beside it: {', '.join(signs)}.",
        reward_sentence(run),
        keys=(SHORTEST_KEY, MEAN_KEY, LONGEST_KEY, "entropy", "reward_std", "reward"),
        first=int(mean.steps[0]),
        certainty=CERTAINTY,
        cause=REWARD_HACKING,
        advice="Go back to a checkpoint from before this step; add prompts, raise temperature or entropy bonus.",
        next_check="Print one group of completions of the latest step: is it one text?",
    )


def _spread(shortest: Course, mean: Course, longest: Course, part: str) -> float:
    low, middle, high = (float(np.median(getattr(each, part))) for each in (shortest, mean, longest))
    return (high - low) / middle
