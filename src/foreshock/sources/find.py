"""Which runs lie in a folder: run directories, folders of checkpoints, logs, file stores and databases of trackers."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from foreshock.errors import ReadError
from foreshock.run import Run
from foreshock.sources import compressed
from foreshock.sources.formats import FILES, FOLDERS, read_file

DEEPEST = 5
"""Levels of folders below the given one in which runs are sought."""

_HEAD = 2**18  # bytes in which a log must show a row; verl prints its whole configuration before the first
_MOST_LISTED = 8


def find_runs(path: str | os.PathLike[str]) -> list[Path]:
    """Return what ``open_run`` can be given, one path a run, in alphabetic order; the path itself if it is one run.

    A log within a folder counts when a row of training stands in its first 256 kB. Hidden folders and links to folders
    are passed over, and so is what cannot be read.
    """
    place = Path(path)
    return list(_in_folder(place, DEEPEST)) if place.is_dir() else _in_file(place) or [place]


def open_folder(folder: Path) -> Run:
    """Read the run that a folder is, or the only one that lies in it.

    Raises:
        ReadError: the folder cannot be listed, holds no run or several, or its run cannot be read.
    """
    try:
        source = next((source for source in FOLDERS if source.looks_like(folder)), None)
        if source is not None:
            return source.read(folder)
        files = sorted(entry.name for entry in folder.iterdir() if entry.is_file())
    except OSError as error:
        raise ReadError(
            f"{str(folder)!r} cannot be listed ({error.strerror or error}). Pass a readable folder."
        ) from error
    runs = find_runs(folder)
    if len(runs) == 1:
        return open_folder(runs[0]) if runs[0].is_dir() else read_file(runs[0])
    if runs:
        raise ReadError(f"{str(folder)!r} holds {len(runs)} runs. Pass one of them: {_listed(runs)}.")
    sought = ", ".join(f"no {source.name}" for source in FOLDERS)
    raise ReadError(
        f"{str(folder)!r} holds no run: {sought}, no traces of an agent, no log with a row of training at its start, "
        f"but {_listed(files) or 'no file'}. Pass the folder of a run, a folder of checkpoints, or one log file."
    )


def _in_folder(folder: Path, levels: int) -> Iterator[Path]:
    try:
        source = next((source for source in FOLDERS if (source.holds_run or source.looks_like)(folder)), None)
        if source is not None:
            yield from source.runs(folder)
            return
        entries = sorted(folder.iterdir())
    except OSError:
        return
    for entry in entries:
        if not entry.is_dir():
            yield from _in_file(entry)
        elif levels and not entry.is_symlink() and not entry.name.startswith("."):
            yield from _in_folder(entry, levels - 1)


def _in_file(path: Path) -> list[Path]:
    try:
        start = compressed.head(path, Counter(), _HEAD)
        source = next(source for source in FILES if source.looks_like(start))
        if not source.certain and compressed.is_binary(start):
            return []
        return source.runs(path) if (source.holds_run or source.looks_like)(start) else []
    except ReadError:
        return []


def _listed(names: Sequence[object]) -> str:
    return ", ".join(map(str, names[:_MOST_LISTED])) + (", …" if len(names) > _MOST_LISTED else "")
