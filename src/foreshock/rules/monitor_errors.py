"""Monitor errors: Foreshock met errors of its own, so a gap in the record is not taken for health.

What: the monitor met errors of its own while training went on.
Why it matters: values near them may be missing.
Known problems: none.
Example: "3 error(s) inside Foreshock, on a worker other than the first."
Options: none.
References: none.
"""

from __future__ import annotations

from foreshock.rules.block_counts import block_counts
from foreshock.rules.finding import CannotJudge, Finding, RuleResult
from foreshock.run import Run

ID = "monitor-errors"

NEEDS = "blocks or notices of foreshock.watch"

SEVERITIES = ("note",)


def check(run: Run) -> RuleResult:
    """Report the errors that the watch counted, as a note."""
    count = block_counts(run).total["errors"]
    notice = run.notices.get(ID)
    if notice is None and not count:
        return RuleResult()
    notice = notice or f"{count:.0f} error(s) inside Foreshock, on a worker other than the first."
    return RuleResult(
        cannot_judge=(CannotJudge(ID, "Foreshock met errors of its own, so parts of the record may be missing."),),
        findings=(
            Finding(
                rule=ID,
                severity="note",
                summary=notice,
                steps=(0, run.last_step),
                advice="Please report it with its first error; logging at DEBUG level prints the whole traceback.",
            ),
        ),
    )
