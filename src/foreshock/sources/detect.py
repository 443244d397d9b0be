"""Which reader a file is for, found by its content."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from foreshock.errors import ReadError
from foreshock.run import Run
from foreshock.sources import compressed, console, csv_table, jsonl, trainer_state


@dataclass(frozen=True, slots=True)
class Source:
    """A reader, and a test of the first bytes that says whether to try it."""

    name: str
    looks_like: Callable[[bytes], bool]
    read: Callable[[Path], Run]


SOURCES = (
    Source("trainer_state.json", trainer_state.looks_like, trainer_state.read),
    Source("JSONL metrics", jsonl.looks_like, jsonl.read),
    Source("CSV with a header", csv_table.looks_like, csv_table.read),
    Source("console log", lambda start: True, console.read),
)
"""Most particular first. Any text may be a console log, whose records can begin anywhere."""


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
    for source in SOURCES:
        if source.looks_like(start):
            try:
                return source.read(path)
            except ReadError as error:
                reasons.append(f"{source.name}: {error}")
    kind = "is a binary file" if _is_binary(start) else "is text"
    raise ReadError(
        f"{str(path)!r} {kind} that starts with {start[:24]!r}, in which no training log was found. "
        f"Expected one of: {_listed()}. Pass such a file, or the folder of a run. Tried: {' '.join(reasons)}"
    )


def _listed() -> str:
    return ", ".join(source.name for source in SOURCES) + " (plain, .gz or .zst)"


def _is_binary(start: bytes) -> bool:
    controls = sum(byte < 32 and byte not in b"\t\n\r\x08\x1b" for byte in start)
    return 20 * controls > len(start)
