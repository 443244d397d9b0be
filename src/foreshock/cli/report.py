"""``foreshock report``."""

from __future__ import annotations

from pathlib import Path

import click

from foreshock.cli.shared import RUN, errors_shown


@click.command()
@RUN
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    default=None,
    help="Folder for report.html; the run's own by default.",
)
def report(run: Path, output: Path | None) -> None:
    """Write report.html, one offline file with every figure."""
    with errors_shown():
        from foreshock.diagnosis import diagnose_run
        from foreshock.errors import ReadError
        from foreshock.sources import open_run
        from foreshock.traces import is_traces
        from foreshock.views.report import write_report

        if is_traces(run):
            raise ReadError(f"{str(run)!r} holds traces of an agent, not a run. Use: foreshock diagnose {run}")
        opened = open_run(run)
        folder = output or (run if run.is_dir() else run.parent)
        folder.mkdir(parents=True, exist_ok=True)
        click.echo(write_report(folder, opened, diagnose_run(opened)))
