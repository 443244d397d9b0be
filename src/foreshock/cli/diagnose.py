"""``foreshock diagnose``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from foreshock.cli.shared import AS_JSON, EXIT_CODES, FAIL_ON, RULES, errors_shown, exit_code, print_document

if TYPE_CHECKING:
    from foreshock.diagnosis import Diagnosis
    from foreshock.plugins import Rule


@click.command(epilog=EXIT_CODES)
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@AS_JSON
@FAIL_ON
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
        sys.exit(exit_code(found, fail_on, is_incomplete=bool(unreadable)))


def _diagnose_all(places: list[Path], rules: Sequence[Rule]) -> tuple[list[Diagnosis], dict[str, str]]:
    """Diagnose each run; one that cannot be read does not keep the others from it."""
    from foreshock.diagnosis import diagnose_by
    from foreshock.errors import MissingExtra, ReadError
    from foreshock.sources.progress import tracked

    found, unreadable = [], {}
    for place in tracked(places, len(places), "runs"):
        try:
            found.append(_light(diagnose_by(place, rules)))
        except (ReadError, MissingExtra, OSError) as error:
            unreadable[str(place)] = str(error)
    return found, unreadable


def _light(diagnosis: Diagnosis) -> Diagnosis:
    """Keep of the run only its identity: the data of thousands of runs may not fit in memory."""
    from foreshock.run import Run

    run = diagnosis.run
    return diagnosis if run is None else replace(diagnosis, run=Run(path=run.path, identity=run.identity))
