"""``foreshock watch``."""

from __future__ import annotations

from pathlib import Path

import click

from foreshock.cli.shared import RULES, RUN, check_exists, errors_shown


@click.command()
@RUN
@click.option(
    "--interval", type=click.FloatRange(min=0.2), default=5.0, show_default=True, help="Seconds between two looks."
)
@click.option("--once", is_flag=True, help="Print the state once and end.")
@RULES
def watch(run: Path, interval: float, once: bool, rules: tuple[Path, ...]) -> None:
    """Follow a run that another process is training."""
    with errors_shown():
        from foreshock.plugins import load_rules
        from foreshock.views import status

        check_exists(run, "the folder of a run that foreshock.watch writes")
        status.follow(run, load_rules(rules), interval=interval, once=once)
