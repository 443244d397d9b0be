"""Every format that can be read, and which of them a file or folder is, found by its content.

A new format is one line in :data:`FILES` or :data:`FOLDERS`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from foreshock.errors import ReadError
from foreshock.run import Run, read_run_directory
from foreshock.sources import (
    compressed,
    console,
    csv_table,
    database,
    dumps,
    jsonl,
    mlflow,
    tensorboard,
    trainer_state,
    wandb,
)

Seen = TypeVar("Seen", bytes, Path)

METRICS = "metrics.jsonl"
"""The one log that is looked for by name: Tinker and others write it."""


@dataclass(frozen=True, slots=True)
class Format(Generic[Seen]):
    """A reader, and the test that says whether to try it: of the first 64 kB of a file, or of a folder.

    ``runs``: the paths of the runs at a place that may hold several. ``holds_run``: a stricter test, for what was found
    in a folder and nobody named. ``certain``: nothing else passes the test, so that what this reader
    raises is the answer.
    """

    name: str
    looks_like: Callable[[Seen], bool]
    read: Callable[[Path], Run]
    runs: Callable[[Path], list[Path]] = lambda path: [path]
    holds_run: Callable[[Seen], bool] | None = None
    certain: bool = False


FILES: tuple[Format[bytes], ...] = (
    Format(tensorboard.FORMAT, tensorboard.looks_like, tensorboard.read, certain=True),
    Format(wandb.FORMAT, wandb.looks_like, wandb.read, certain=True),
    Format(database.FORMAT, database.looks_like, database.read, database.run_paths, certain=True),
    Format(trainer_state.FORMAT, trainer_state.looks_like, trainer_state.read),
    Format("token dump", dumps.looks_like, dumps.read, certain=True),
    Format(jsonl.FORMAT, jsonl.looks_like, jsonl.read, holds_run=console.holds_row),
    Format("CSV with a header", csv_table.looks_like, csv_table.read, holds_run=csv_table.has_steps),
    Format("console log", lambda start: True, console.read, holds_run=console.holds_row),
)
"""Most particular first; of those that fit, the first that finds rows is taken. Any text may be a console log."""

FOLDERS: tuple[Format[Path], ...] = (
    Format("run.json", lambda folder: (folder / "run.json").is_file(), read_run_directory),
    Format(trainer_state.FILE, trainer_state.has_states, trainer_state.read_folder, trainer_state.run_paths),
    Format(wandb.PATTERN, wandb.has_file, wandb.read_folder),
    Format(tensorboard.PATTERN, tensorboard.has_events, tensorboard.read_folder),
    Format("token dump", lambda folder: dumps.find(folder) is not None, dumps.read, holds_run=dumps.is_folder_of),
    Format("MLflow run", mlflow.is_run, mlflow.read_folder),
    Format(METRICS, lambda folder: (folder / METRICS).is_file(), lambda folder: read_file(folder / METRICS)),
)
"""Most particular first, each named by what it is recognised by; the first that fits is taken."""


def read_file(path: Path) -> Run:
    """Read a file with the first reader that its content fits and that finds rows in it.

    Raises:
        ReadError: the file is empty or cannot be opened, or no reader finds rows; the formats tried are named.
    """
    inside = database.run_in(path)
    if inside is not None:
        return database.read(*inside)
    damage: Counter[str] = Counter()
    start = compressed.head(path, damage)
    if not start.strip(b"\0 \t\r\n"):
        what = "is compressed, but damaged from the start" if damage else "is empty"
        raise ReadError(f"{str(path)!r} {what}. Pass a log that holds rows: {_listed()}.")
    reasons = []
    for source in FILES:
        if source.looks_like(start):
            try:
                return source.read(path)
            except ReadError as error:
                if source.certain:
                    raise
                reasons.append(f"{source.name}: {error}")
    kind = "is a binary file" if compressed.is_binary(start) else "is text"
    raise ReadError(
        f"{str(path)!r} {kind} that starts with {start[:24]!r}, in which no training log was found. "
        f"Expected one of: {_listed()}. Pass such a file, or the folder of a run. Tried: {' '.join(reasons)}"
    )


def _listed() -> str:
    return ", ".join(source.name for source in FILES) + " (plain, .gz or .zst), or traces of an agent"
