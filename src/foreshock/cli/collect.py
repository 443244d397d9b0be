"""``foreshock collect``."""

from __future__ import annotations

from pathlib import Path

import click

from foreshock.cli.shared import errors_shown


@click.command()
@click.argument("dump", type=click.Path(path_type=Path))
@click.option("--output", type=click.Path(path_type=Path), required=True, help="New run directory to write.")
@click.option(
    "--engine",
    type=click.Choice(["local", "ray"]),
    default="local",
    show_default=True,
    help="Where files are read: on this machine, or on Ray. The result is the same to the bit.",
)
@click.option(
    "--workers", type=click.IntRange(min=1), default=1, show_default=True, help="Files that are read at a time."
)
def collect(dump: Path, output: Path, engine: str, workers: int) -> None:
    """Summarise a token dump as a run directory.

    Every other command then reads that in a moment instead of the whole dump.
    """
    with errors_shown():
        from foreshock.sources import dumps

        dumps.check_is_new(output)  # before the hours that reading may take
        run = dumps.collect(dumps.open_dump(dump), engine=engine, workers=workers)
        dumps.write(run, output)
        blocks = "one block" if len(run.blocks) == 1 else f"{len(run.blocks)} blocks"
        click.echo(f"{output}: {blocks}, up to step {run.last_step}")
