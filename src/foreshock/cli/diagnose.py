"""``foreshock diagnose``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from foreshock.cli.shared import CANNOT_JUDGE, EXIT_CODES, FINDINGS, OK, RULES, errors_shown, print_document

if TYPE_CHECKING:
    from foreshock.diagnosis import Diagnosis


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
    """Say what is wrong with runs.

    And how sure that is, what it excludes, what to try, and which check would tell more.
    """
    with errors_shown():
        from foreshock.diagnosis import diagnose_by
        from foreshock.plugins import load_rules

        chosen = load_rules(rules, select=select, ignore=ignore)
        found = [diagnose_by(path, chosen) for path in runs]
        if as_json:
            print_document({"schema": 1, "runs": [diagnosis.to_dict() for diagnosis in found]})
        else:
            from rich.console import Console

            from foreshock.views import terminal

            console = Console()
            for diagnosis in found:
                console.print(terminal.render_diagnosis(diagnosis))
        sys.exit(_exit_code(found, fail_on))


def _exit_code(found: list[Diagnosis], fail_on: str) -> int:
    from foreshock.rules.finding import SEVERITIES

    level = SEVERITIES.index(fail_on)
    if any(SEVERITIES.index(finding.severity) >= level for diagnosis in found for finding in diagnosis.findings):
        return FINDINGS
    return CANNOT_JUDGE if any(diagnosis.verdict == "cannot_judge" for diagnosis in found) else OK
