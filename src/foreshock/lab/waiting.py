"""Training a reference policy before the eyes of somebody who waits for it."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from transformers.utils.logging import disable_progress_bar

from foreshock.lab.reference import ReferenceConfig, reference_folder

LINES = 10
"""How many lines a pipe gets in the place of the bar."""


def prepare_reference(config: ReferenceConfig, cache: Path, console: Console) -> Path:
    """Return the reference's folder, showing how its training goes where it is not cached yet."""
    disable_progress_bar()
    progress = Progress(
        TextColumn("training the reference policy, step"),
        MofNCompleteColumn(),
        BarColumn(bar_width=20),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
        transient=True,
    )

    def show(step: int) -> None:
        progress.update(task, completed=step)
        if not console.is_terminal and step % max(1, config.steps // LINES) == 0:
            console.print(f"training the reference policy, step {step}/{config.steps}")

    task = progress.add_task("", total=config.steps)
    with progress:
        return reference_folder(config, cache, show)
