"""``foreshock diagnose``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from foreshock.cli.shared import CANNOT_JUDGE, EXIT_CODES, FINDINGS, OK, RULES, UNREADABLE, errors_shown, print_document

if TYPE_CHECKING:
    from foreshock.diagnosis import Diagnosis
    from foreshock.plugins import Rule


@click.command(epilog=EXIT_CODES)
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
@click.option(
    "--fail-on",
    type=click.Choice(["warning", "critical"]),
    default="warning",
    show_default=True,
    help="Lowest severity that gives exit code 1.",
)
@RULES
@click.option("--select", multiple=True, metavar="RULE", help="Ask only this rule; repeatable.")
@click.option("--ignore", multiple=True, metavar="RULE", help="Do not ask this rule; repeatable.")
def diagnose(
    runs: tuple[Path, ...],
    as_json: bool,
    fail_on: str,
    rules: tuple[Path, ...],
    select: tuple[str, ...],
    ignore: tuple[str, ...],
) -> None:
    """Say what is wrong with a run, or with many.

    And how sure that is, what it excludes, what to try, and which check would tell more. Of several runs, or of a
    folder of them, a table with the worst first.
    """
    with errors_shown():
        from foreshock.diagnosis import diagnose_by, places_of
        from foreshock.plugins import load_rules

        chosen = load_rules(rules, select=select, ignore=ignore)
        places = [place for path in runs for place in places_of(path)]
        unreadable: dict[str, str] = {}
        if len(places) == 1:
            found = [diagnose_by(places[0], chosen)]
        else:
            found, unreadable = _diagnose_all(places, chosen)
        if as_json:
            unread = [{"path": path, "error": error} for path, error in unreadable.items()]
            print_document({"schema": 1, "runs": [run.to_dict() for run in found], "unreadable": unread})
        else:
            from rich.console import Console

            from foreshock.views.overview import render_overview
            from foreshock.views.terminal import render_diagnosis

            several = len(places) > 1
            Console().print(render_overview(found, unreadable) if several else render_diagnosis(found[0]))
        sys.exit(_exit_code(found, fail_on, bool(unreadable)))


def _diagnose_all(places: list[Path], rules: Sequence[Rule]) -> tuple[list[Diagnosis], dict[str, str]]:
    """Diagnose each run; one that cannot be read does not keep the others from it."""
    from foreshock.diagnosis import diagnose_by
    from foreshock.errors import MissingExtra, ReadError
    from foreshock.sources.progress import tracked

    found, unreadable = [], {}
    for place in tracked(places, len(places), "runs"):
        try:
            found.append(replace(diagnose_by(place, rules), run=None))  # a run of thousands may not fit in memory
        except (ReadError, MissingExtra, OSError) as error:
            unreadable[str(place)] = str(error)
    return found, unreadable


def _exit_code(found: list[Diagnosis], fail_on: str, is_incomplete: bool) -> int:
    from foreshock.rules.finding import SEVERITIES

    level = SEVERITIES.index(fail_on)
    if any(SEVERITIES.index(finding.severity) >= level for diagnosis in found for finding in diagnosis.findings):
        return FINDINGS
    if is_incomplete:
        return UNREADABLE
    return CANNOT_JUDGE if any(diagnosis.verdict == "cannot_judge" for diagnosis in found) else OK
