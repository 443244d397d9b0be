"""``foreshock reproduce``."""

from __future__ import annotations

from pathlib import Path

import click

from foreshock.cli.shared import errors_shown
from foreshock.lab.arms import ARMS

DEFAULT_ARMS = ("fixed", "drift_aware", "constrained")


class Seeds(click.ParamType[list[int]]):
    """Seeds as ``0-4`` or ``0,3,7``."""

    name = "seeds"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> list[int]:
        """Read the seeds, each once, in order."""
        seeds: list[int] = []
        for part in str(value).split(","):
            first, _, last = part.strip().partition("-")
            if not first.isdigit() or not (last or first).isdigit() or int(last or first) < int(first):
                self.fail(f"{value!r} is not a list of seeds. Pass for example 0-4 or 0,3,7.", param, ctx)
            seeds += range(int(first), int(last or first) + 1)
        return list(dict.fromkeys(seeds))


@click.command()
@click.option(
    "--arms",
    metavar="ARM,…",
    default=",".join(DEFAULT_ARMS),
    show_default=True,
    help=f"Of: {', '.join(ARMS)}.",
)
@click.option("--seeds", type=Seeds(), default="0-4", show_default=True, help="Such as 0-4 or 0,3,7.")
@click.option("--full", is_flag=True, help="Every arm.")
@click.option("--steps", type=click.IntRange(min=1), default=None, help="Optimizer steps of a run.")
@click.option("--jobs", type=click.IntRange(min=1), default=None, help="Runs at a time; by default one a core.")
@click.option(
    "--model",
    type=click.Choice(["tiny", "smollm2"]),
    default="tiny",
    show_default=True,
    help="smollm2 is a real language model, with half an hour a run on one core.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("runs/reproduce"),
    show_default=True,
    help="Where to write runs, figures, tables and the page.",
)
def reproduce(
    arms: str, seeds: list[int], full: bool, steps: int | None, jobs: int | None, model: str, output: Path
) -> None:
    """Repeat the experiment over arms and seeds.

    Draws the figures and tables from the run directories. Runs that have finished are kept when it is started again; a
    half-finished one starts anew (with smollm2: goes on from its last checkpoint).
    """
    with errors_shown():
        from foreshock.lab import reproduce as lab_reproduce

        names = list(ARMS) if full else [name.strip() for name in arms.split(",")]
        lab_reproduce.run(arms=names, seeds=seeds, steps=steps, jobs=jobs, model=model, output=output)
