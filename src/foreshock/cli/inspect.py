"""``foreshock inspect``."""

from __future__ import annotations

from pathlib import Path

import click

from foreshock.cli.shared import RUN, errors_shown, print_document


@click.command()
@RUN
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
def inspect(run: Path, as_json: bool) -> None:
    """Show what can be read of a run, a log or traces.

    Its format, rows, steps and keys, and what was skipped and why.
    """
    with errors_shown():
        from foreshock import sources, traces

        if traces.is_traces(run):
            described = traces.describe(traces.read_traces(run))
        else:
            described = sources.describe(sources.open_run(run))
        if as_json:
            print_document({"schema": 1, **described})
        else:
            from rich.console import Console

            from foreshock.views import terminal

            Console().print(terminal.render_description(described))
