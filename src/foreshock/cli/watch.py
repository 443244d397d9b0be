"""``foreshock watch``."""

from __future__ import annotations

from pathlib import Path

import click

from foreshock.cli.shared import RUN, errors_shown


@click.command()
@RUN
@click.option(
    "--interval", type=click.FloatRange(min=0.2), default=5.0, show_default=True, help="Seconds between two looks."
)
@click.option("--once", is_flag=True, help="Print the state once and end.")
def watch(run: Path, interval: float, once: bool) -> None:
    """Follow a run that another process is training."""
    with errors_shown():
        from foreshock.views import status

        status.follow(run, interval=interval, once=once)
