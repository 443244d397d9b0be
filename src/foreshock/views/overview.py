"""Many runs at a glance, worst first."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from foreshock.diagnosis import VERDICTS, Diagnosis
from foreshock.rules.finding import Finding
from foreshock.views.terminal import STYLES, labelled
from foreshock.views.words import verdict_word


def render_overview(found: Sequence[Diagnosis], unreadable: Mapping[str, str]) -> RenderableType:
    """Return a table of runs with the worst first, what each finding says, and why some could not be read."""
    ranked = sorted(found, key=_rank)
    folder = _shared_folder(ranked)
    table = Table(box=None, show_edge=False, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("verdict", no_wrap=True)
    table.add_column("run", overflow="fold")
    table.add_column("since step", justify="right", no_wrap=True)
    table.add_column("finding, cause", overflow="fold")
    for diagnosis in ranked:
        first = _worst(diagnosis)
        table.add_row(
            Text(verdict_word(diagnosis), STYLES[diagnosis.verdict]),
            Text(_name(diagnosis, folder)),
            Text(str(first.steps[0]) if first else ""),
            Text("\n".join((first.rule, *(cause.name for cause in diagnosis.causes[:1]))) if first else ""),
        )
    parts: list[RenderableType] = [Text(f"Runs in {folder}\n")] if folder else []
    parts += [table] if ranked else []
    for path, reason in unreadable.items():
        parts += [Text(), labelled("Cannot be read", reason if path in reason else f"{path}: {reason}")]
    if any(_worst(diagnosis) for diagnosis in ranked):
        parts += [Text(), Text("foreshock diagnose RUN shows the evidence, the causes and the next check of one run.")]
    return Group(*parts)


def _shared_folder(found: Sequence[Diagnosis]) -> str:
    """Return the folder that all runs lie in; "" where they share none."""
    try:
        folder = os.path.commonpath([os.path.dirname(str(diagnosis.path)) for diagnosis in found])
    except ValueError:  # none, or absolute and relative paths
        return ""
    return "" if folder == os.sep else folder


def _name(diagnosis: Diagnosis, folder: str) -> str:
    """Return the path below the shared folder; a run of a database by its name, where it has one, not by its id."""
    path = os.path.relpath(str(diagnosis.path), folder) if folder else str(diagnosis.path)
    file, mark, _ = path.partition("#")
    name = diagnosis.run.identity.get("name") if diagnosis.run is not None else None
    return f"{file}#{name}" if mark and name else path


def _worst(diagnosis: Diagnosis) -> Finding | None:
    """Return the first of the gravest findings; a note is none."""
    return next((finding for finding in diagnosis.findings if finding.severity != "note"), None)


def _rank(diagnosis: Diagnosis) -> tuple[int, int]:
    first = _worst(diagnosis)
    return -VERDICTS.index(diagnosis.verdict), first.steps[0] if first else 0
