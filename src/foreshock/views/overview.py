"""Many runs at a glance: one row a run, worst first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from foreshock.diagnosis import VERDICTS, Diagnosis
from foreshock.rules.finding import Finding
from foreshock.views.terminal import STYLES, labelled
from foreshock.views.words import VERDICTS as WORDS


def render_overview(found: Sequence[Diagnosis], unreadable: Mapping[str, str]) -> RenderableType:
    """Return a table of runs with the worst first, what each finding says, and why some could not be read."""
    ranked = sorted(found, key=_rank)
    table = Table(box=None, show_edge=False, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for column in ("verdict", "run", "first finding", "likeliest cause"):
        table.add_column(column, overflow="fold")
    table.add_column("since step", justify="right")
    for diagnosis in ranked:
        first = _worst(diagnosis)
        table.add_row(
            Text(WORDS[diagnosis.verdict], STYLES[diagnosis.verdict]),
            Text(str(diagnosis.path)),
            Text(first.rule if first else ""),
            Text(diagnosis.causes[0].name if first and diagnosis.causes else ""),
            Text(str(first.steps[0]) if first else ""),
        )
    parts: list[RenderableType] = [table] if ranked else []
    parts += [labelled("Cannot be read", f"{path}: {reason}") for path, reason in unreadable.items()]
    if any(_worst(diagnosis) for diagnosis in ranked):
        parts += [Text(), Text("foreshock diagnose RUN shows the evidence, the causes and the next check of one run.")]
    return Group(*parts)


def _worst(diagnosis: Diagnosis) -> Finding | None:
    """Return the first of the gravest findings; a note is none."""
    return next((finding for finding in diagnosis.findings if finding.severity != "note"), None)


def _rank(diagnosis: Diagnosis) -> tuple[int, int]:
    first = _worst(diagnosis)
    return -VERDICTS.index(diagnosis.verdict), first.steps[0] if first else 0
