"""``foreshock demo``."""

from __future__ import annotations

from pathlib import Path

import click

from foreshock.cli.shared import errors_shown
from foreshock.lab.arms import ARMS


@click.command()
@click.option(
    "--arm",
    type=click.Choice(list(ARMS)),
    default="fixed",
    show_default=True,
    help="How the policy is held to its reference, or the tool to its form.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="The same seed gives the same run.")
@click.option(
    "--steps", type=click.IntRange(min=1), default=None, help="Optimizer steps; by default what fits in five minutes."
)
@click.option(
    "--model",
    type=click.Choice(["tiny", "smollm2"]),
    default="tiny",
    show_default=True,
    help="smollm2 is a real language model; it takes most of an hour.",
)
@click.option(
    "--run-dir",
    type=click.Path(path_type=Path),
    default=None,
    help="Where to write the run; runs/demo-ARM-SEED by default.",
)
def demo(arm: str, seed: int, steps: int | None, model: str, run_dir: Path | None) -> None:
    """Train a small tool-using agent and watch its tail.

    A real TRL run: the post-tool tail grows while everything else looks fine. With --arm constrained it does not.
    """
    with errors_shown():
        from foreshock.lab import demo as lab_demo

        lab_demo.run(arm=arm, seed=seed, steps=steps, model=model, run_dir=run_dir)
