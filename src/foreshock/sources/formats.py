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
from foreshock.sources import compressed, console, csv_table, dumps, jsonl, trainer_state

Seen = TypeVar("Seen", bytes, Path)

METRICS = "metrics.jsonl"
"""The one log that is looked for by name: Tinker and others write it."""


@dataclass(frozen=True, slots=True)
class Format(Generic[Seen]):
    """A reader, and the test that says whether to try it: of the first 64 kB of a file, or of a folder."""

    name: str
    looks_like: Callable[[Seen], bool]
    read: Callable[[Path], Run]
    certain: bool = False
    """The test leaves no doubt, so that no other reader is tried when this one fails."""


FILES: tuple[Format[bytes], ...] = (
    Format("trainer_state.json", trainer_state.looks_like, trainer_state.read),
    Format("token dump", dumps.looks_like, dumps.read, certain=True),
    Format("JSONL metrics", jsonl.looks_like, jsonl.read),
    Format("CSV with a header", csv_table.looks_like, csv_table.read),
    Format("console log", lambda start: True, console.read),
)
"""Most particular first; of those that fit, the first that finds rows is taken. Any text may be a console log."""

FOLDERS: tuple[Format[Path], ...] = (
    Format("run.json", lambda folder: (folder / "run.json").is_file(), read_run_directory),
    Format(trainer_state.FILE, lambda folder: bool(trainer_state.states_in(folder)), trainer_state.read_folder),
    Format("token dump", lambda folder: dumps.find(folder) is not None, dumps.read),
    Format(METRICS, lambda folder: (folder / METRICS).is_file(), lambda folder: read_file(folder / METRICS)),
)
"""Most particular first, each named by what it is recognised by; the first that fits is taken."""


def read_file(path: Path) -> Run:
    """Read a file with the first reader that its content fits and that finds rows in it.

    Raises:
        ReadError: the file is empty or cannot be opened, or no reader finds rows; the formats tried are named.
    """
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
    kind = "is a binary file" if _is_binary(start) else "is text"
    raise ReadError(
        f"{str(path)!r} {kind} that starts with {start[:24]!r}, in which no training log was found. "
        f"Expected one of: {_listed()}. Pass such a file, or the folder of a run. Tried: {' '.join(reasons)}"
    )


def read_folder(folder: Path) -> Run:
    """Read a folder with the reader of the first format that it fits.

    Raises:
        ReadError: the folder cannot be listed, fits no format, or cannot be read as the one it fits.
    """
    try:
        for source in FOLDERS:
            if source.looks_like(folder):
                return source.read(folder)
        files = sorted(entry.name for entry in folder.iterdir() if entry.is_file())
    except OSError as error:
        raise ReadError(
            f"{str(folder)!r} cannot be listed ({error.strerror or error}). Pass a readable folder."
        ) from error
    listed = ", ".join(files[:8]) + (", …" if len(files) > 8 else "") or "no file"
    sought = ", ".join(f"no {source.name}" for source in FOLDERS)
    raise ReadError(
        f"{str(folder)!r} holds no run: {sought}, but {listed}. "
        "Pass the folder of a run, a folder of checkpoints, or one log file."
    )


def _listed() -> str:
    return ", ".join(source.name for source in FILES) + " (plain, .gz or .zst)"


def _is_binary(start: bytes) -> bool:
    controls = sum(byte < 32 and byte not in b"\t\n\r\x08\x1b" for byte in start)
    return 20 * controls > len(start)
