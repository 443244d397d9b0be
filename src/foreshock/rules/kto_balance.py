"""KTO balance: only one of the two classes, desirable or undesirable, is being learned. A note, never more.

What: in a log with margins and without accuracies (KTO), one of ``rewards/chosen`` and ``rewards/rejected`` has moved
and the other by less than a tenth of that, or one of them is missing in most rows.
Why it matters: KTO weighs the classes by ``desirable_weight`` and ``undesirable_weight``; data of mostly one class
teaches mostly one thing.
Known problems: it may be what the data allows, so it is a note.
Example: "rewards/rejected has moved by -1.8 and rewards/chosen by 0.04: mostly the rejected answers are learned."
Options: none.
References: Ethayarajh et al., "KTO: model alignment as prospect theoretic optimization" (arXiv:2402.01306), section
4.2 on the weights.
"""

from __future__ import annotations

from foreshock.rules.finding import RuleResult
from foreshock.rules.series import course, even_rows, rows_of
from foreshock.rules.statements import one_finding
from foreshock.run import Run

ID = "kto-balance"

NEEDS = "rewards/chosen, rewards/rejected and rewards/margins, without rewards/accuracies"

SEVERITIES = ("note",)

CHOSEN, REJECTED = "rewards/chosen", "rewards/rejected"

LITTLE = 0.1
"""Move of the one class as a share of the other's (heuristic)."""

RARE = 0.2
"""Share of the rows of the one class in which the other is logged too, below which it is rare (heuristic)."""


def check(run: Run) -> RuleResult:
    """Compare the moves of the two classes, and in how many rows each appears."""
    if "rewards/margins" not in run.series or "rewards/accuracies" in run.series:
        return RuleResult()
    counts = {key: _rows_logged(run, key) for key in (CHOSEN, REJECTED)}
    rare, common = sorted(counts, key=lambda key: counts[key])
    if counts[common] and counts[rare] < RARE * counts[common]:
        share = counts[rare] / counts[common]
        since = int(rows_of(run, common)[0][0])
        return _note(
            run, since, f"{rare} is logged in {share:.0%} as many rows as {common}: nearly all data is of one class."
        )
    chosen, rejected = course(run, CHOSEN, warm_up=False), course(run, REJECTED, warm_up=False)
    if chosen is None or rejected is None:
        return RuleResult()
    still, moved = sorted((chosen, rejected), key=lambda each: abs(each.gain))
    if not moved.change.moved or abs(still.gain) >= LITTLE * abs(moved.gain):
        return RuleResult(judged=(f"both classes are learned ({CHOSEN}, {REJECTED})",) if moved.change.moved else ())
    kind = "chosen" if moved is chosen else "rejected"
    return _note(
        run,
        moved.since,
        f"{moved.key} has moved by {moved.gain:.2g} and {still.key} by {still.gain:.2g}: mostly the {kind} answers are "
        "learned.",
    )


def _rows_logged(run: Run, key: str) -> int:
    """Return how many finite rows a key has had; an estimate where some were thinned out."""
    return even_rows(run, key)[0].size << run.series[key].level if key in run.series else 0


def _note(run: Run, since: int, what: str) -> RuleResult:
    return one_finding(
        run,
        ID,
        "note",
        since,
        what,
        keys=(CHOSEN, REJECTED, "rewards/margins", "kl", "loss"),
        certainty="A note: the data may allow no more.",
        advice="Set desirable_weight and undesirable_weight so that weight times count is about equal for both.",
        next_check="Count the two classes in the data set.",
    )
