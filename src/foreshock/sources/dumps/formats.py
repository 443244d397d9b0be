"""The known formats of token dumps, and the files of one in a folder, found by their content."""

from __future__ import annotations

import contextlib
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from foreshock.errors import ReadError
from foreshock.sources import compressed
from foreshock.sources.dumps import nemo_rl, prime_rl, skyrl, slime
from foreshock.sources.dumps.tokens import DumpBatch

DEPTH = 3
"""Levels of folders below the given one in which files are looked for."""

HEAD = 2**22
"""Bytes of a file that are looked at: a line may begin with the text of a whole trajectory."""

MOST_KINDS = 200
"""Kinds of name in one folder, numbers apart, of which one file each is looked at."""


@dataclass(frozen=True, slots=True)
class DumpFormat:
    """One format: its reader, how it is recognised, and which of its keys become what.

    ``depth``: levels of folders between the folder of a dump and its files.
    """

    name: str
    looks_like: Callable[[bytes], bool]
    read: Callable[[Path, Counter[str]], Iterator[DumpBatch]]
    first_step: int
    keys: Mapping[str, str]
    is_complete: Callable[[Path], bool] = lambda path: True
    depth: int = 0


FORMATS = (
    DumpFormat(
        prime_rl.NAME, prime_rl.looks_like, prime_rl.read, prime_rl.FIRST_STEP, prime_rl.KEYS, prime_rl.is_complete, 1
    ),
    *(
        DumpFormat(part.NAME, part.looks_like, part.read, part.FIRST_STEP, part.KEYS)
        for part in (nemo_rl, slime, skyrl)
    ),
)


@dataclass(frozen=True, slots=True)
class Dump:
    """The files of one token dump, in the order of the numbers in their names, and what was left out."""

    path: Path
    format: DumpFormat
    files: tuple[Path, ...]
    skipped: Mapping[str, int]


def find(path: Path) -> Dump | None:
    """Return the dump that a file is, or that a folder holds within :data:`DEPTH` levels; None when there is none.

    One file of each kind of name is looked at. The first format that is found is taken.

    Raises:
        ReadError: the path cannot be opened or listed.
    """
    if not path.is_dir():
        found = _format_of(path)
        return None if found is None else Dump(path, found, (path,), {})
    by_format: dict[str, list[Path]] = {}
    for found, files in _recognised(path, DEPTH):
        by_format.setdefault(found.name, []).extend(files)
    for known in FORMATS:
        if known.name in by_format:
            files = sorted(by_format[known.name], key=lambda file: _natural(str(file.relative_to(path))))
            whole = tuple(file for file in files if known.is_complete(file))
            left_out = len({file.parent for file in files} - {file.parent for file in whole})
            return Dump(path, known, whole, {"steps that were not written to the end": left_out} if left_out else {})
    return None


def is_folder_of(folder: Path) -> bool:
    """Say whether the files of a dump lie where its format puts them, and not somewhere below, beside other runs."""
    deepest = max(known.depth for known in FORMATS)
    return any(_levels(folder, files[0].parent) <= found.depth for found, files in _recognised(folder, deepest))


def open_dump(path: Path) -> Dump:
    """Return the dump at a path.

    Raises:
        ReadError: there is none; the message names the known formats.
    """
    if not path.exists():
        raise ReadError(f"{str(path)!r} does not exist. Pass a token dump: a folder or one of its files.")
    dump = find(path)
    if dump is None:
        names = ", ".join(known.name for known in FORMATS)
        raise ReadError(f"{str(path)!r} holds no token dump. Expected one of: {names}. Pass the folder of one.")
    return dump


def looks_like(start: bytes) -> bool:
    """Say whether a file that starts so is one of a token dump."""
    return any(known.looks_like(start) for known in FORMATS)


def _recognised(folder: Path, levels: int) -> Iterator[tuple[DumpFormat, list[Path]]]:
    """Yield the format and the files of each kind of name that belongs to a dump, at most so many levels below."""
    kinds: dict[str, list[Path]] = {}
    for file in _files(folder, levels):
        kinds.setdefault(re.sub(r"\d+", "0", str(file.relative_to(folder))), []).append(file)
    for files in islice(kinds.values(), MOST_KINDS):
        found = None
        with contextlib.suppress(ReadError):  # what cannot be opened is not of a dump
            found = _format_of(files[0])
        if found is not None:
            yield found, files


def _format_of(path: Path) -> DumpFormat | None:
    start = compressed.head(path, Counter(), HEAD)
    return next((known for known in FORMATS if known.looks_like(start)), None)


def _files(folder: Path, levels: int) -> Iterator[Path]:
    """Yield the regular files below a folder, without following links to folders or entering hidden ones."""
    for place, folders, names in os.walk(folder):
        deeper = _levels(folder, Path(place)) < levels
        folders[:] = sorted(name for name in folders if not name.startswith(".")) if deeper else []
        for name in sorted(names):
            file = Path(place, name)
            if file.is_file() and file.stat().st_size:
                yield file


def _levels(above: Path, below: Path) -> int:
    return len(below.relative_to(above).parts)


def _natural(text: str) -> list[tuple[int, str]]:
    """Return a key that sorts step_2 before step_10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", text)]
