"""``foreshock report``."""

from __future__ import annotations

from pathlib import Path

import click

from foreshock.cli.shared import RULES, RUN, errors_shown, open_one_run


@click.command()
@RUN
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    default=None,
    help="Folder for report.html; the run's own by default.",
)
@RULES
def report(run: Path, output: Path | None, rules: tuple[Path, ...]) -> None:
    """Write report.html, one offline file with every figure."""
    with errors_shown():
        from foreshock.diagnosis import diagnose_run
        from foreshock.plugins import load_rules
        from foreshock.views.report import write_report

        chosen = load_rules(rules)
        opened = open_one_run(run)
        folder = output or (run if run.is_dir() else run.parent)
        folder.mkdir(parents=True, exist_ok=True)
        click.echo(write_report(folder, opened, diagnose_run(opened, chosen)))
