"""``foreshock compare``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from foreshock.cli.shared import CANNOT_JUDGE, FINDINGS, OK, errors_shown, open_one_run, print_document

EXIT_CODES = """
\b
Exit codes:
  0  nothing differs by more than noise
  1  something differs
  2  unreadable input or wrong use
  3  nothing could be compared
"""


@click.command(epilog=EXIT_CODES)
@click.argument("a", type=click.Path(path_type=Path))
@click.argument("b", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
def compare(a: Path, b: Path, as_json: bool) -> None:
    """Show what differs first between two runs.

    Since which step, by how much, and what was set differently.
    """
    with errors_shown():
        from foreshock.comparison import compare as compare_runs

        found = compare_runs(open_one_run(a), open_one_run(b))
        if as_json:
            print_document({"schema": 1, **found.to_dict()})
        else:
            from rich.console import Console

            from foreshock.views.side_by_side import render_comparison

            Console().print(render_comparison(found))
        sys.exit(FINDINGS if found.differences else OK if found.alike else CANNOT_JUDGE)
