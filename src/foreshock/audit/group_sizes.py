"""Group sizes: not every prompt has the same number of rollouts.

What: the rows of a step are counted by prompt. Most prompts have one number of rows, and some another.
Why it matters: an advantage relative to a group of one is zero or undefined, and a group that lost rows has a biased
baseline. Which rows are lost is seldom chance: the longest, those that failed, those whose tool timed out.
Known problems: trainers that cut a rollout into several rows, one a turn or branch, give each a prompt of its own; then
sizes differ by design. So this is only noted.
Example: "7.0% of the groups do not have the 8 rollouts that most have."
Options: none.
References: none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from foreshock.rules.finding import Finding, RuleResult

ID = "audit-group-sizes"

NEEDS = "a token dump, or traces with steps"

SEVERITIES = ("note",)

FEW = 0.02
"""Share of groups of another size up to which nothing is said (heuristic)."""

SHOWN = 6


def check(groups: Mapping[int, Counter[int]]) -> RuleResult:
    """Compare how many rows the prompts of each step have; ``groups``: rows by prompt, by step."""
    sizes = Counter(rows for step in groups.values() for rows in step.values())
    count = sizes.total()
    if not count:
        return RuleResult()
    usual, times = max(sizes.items(), key=lambda item: (item[1], item[0]))
    other = 1 - times / count
    if usual > 1 and other <= FEW:
        return RuleResult(judged=(f"groups of {usual}",))
    summary = (
        f"Most prompts have a single rollout ({times:,} of {count:,}): an advantage relative to the group says nothing."
        if usual == 1
        else f"{other:.1%} of the groups do not have the {usual} rollouts that most have."
    )
    odd = [step for step, rows in groups.items() if any(size != usual for size in rows.values())] or list(groups)
    finding = Finding(
        rule=ID,
        severity="note",
        summary=summary,
        steps=(min(odd), max(odd)),
        evidence=tuple({"rollouts": size, "groups": number} for size, number in sorted(sizes.items())[:SHOWN]),
        certainty="Counted; whether it is meant so, the dump does not say.",
        advice="If each rollout is one row, look at which rows are missing: are they the long or the failed ones?",
    )
    return RuleResult((finding,))
