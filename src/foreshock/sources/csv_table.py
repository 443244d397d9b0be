"""CSV with a header: comma, semicolon or tab, one row a line, such as an exported W&B chart or a Lightning log."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path

from foreshock.errors import ReadError
from foreshock.run import Run
from foreshock.sources import compressed
from foreshock.sources.keys import is_step
from foreshock.sources.rows import Rows, number

FORMAT = "CSV"
DELIMITERS = (",", ";", "\t")


def looks_like(start: bytes) -> bool:
    """Say whether the first line names at least two columns and half of the next ones hold as many, with a number."""
    content = filter(_is_content, start.replace(b"\r", b"\n").split(b"\n"))
    lines = [compressed.text(line) for line in islice(content, 20)]
    if len(lines) < 2:
        return False
    delimiter = _delimiter(lines[0])
    names, *rows = (_cells(line, delimiter) for line in lines)
    fitting = [cells for cells in rows if len(cells) == len(names) and any(map(_is_number, cells))]
    return len(names) > 1 and _is_header(names) and 2 * len(fitting) >= len(rows)


def has_steps(start: bytes) -> bool:
    """Say whether a column counts steps: a table that nobody named is otherwise no log of a run."""
    header = next((line for line in start.replace(b"\r", b"\n").split(b"\n") if _is_content(line)), b"")
    names = compressed.text(header)
    return looks_like(start) and any(map(is_step, _cells(names, _delimiter(names))))


def read(path: Path) -> Run:
    """Read a table line by line; an empty cell is a value that was not logged.

    A header that stands in the middle, where two files were joined, starts a new table with the same steps. A line
    with another number of cells is counted as torn; a line break within quotes is not understood.

    Raises:
        ReadError: the file cannot be opened, or is no table with a header and numbers.
    """
    rows = Rows()
    lines = (line for line in compressed.lines(path, rows.skipped) if _is_content(line))
    header = compressed.text(next(lines, b""))
    delimiter = _delimiter(header)
    names = _cells(header, delimiter)
    if len(names) < 2 or not _is_header(names):
        raise ReadError(f"{str(path)!r} does not start with a line that names columns.")
    for line in lines:
        cells = _cells(compressed.text(line), delimiter)
        if len(cells) == len(names) and not _repeats_header(cells, names):
            rows.add(dict(zip(names, _values(cells), strict=True)))
        elif len(cells) > 1 and _is_header(cells) and _shared(cells, names):
            names = cells
        else:
            rows.skipped[compressed.TORN] += 1
    if not rows.count:
        raise ReadError(f"{str(path)!r} has a header, but no row with a number below it.")
    return rows.run(path, FORMAT)


def _values(cells: list[str]) -> Sequence[float | str | None]:
    try:
        return list(map(float, cells))
    except ValueError:
        return [cell.strip() or None for cell in cells]


def _cells(line: str, delimiter: str) -> list[str]:
    if '"' not in line:
        return line.split(delimiter)
    try:
        return next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:
        return []


def _delimiter(header: str) -> str:
    return max(DELIMITERS, key=header.count)


def _is_content(line: bytes) -> bool:
    return not line.isspace() and bool(line) and not line.startswith(b"#")


def _is_header(names: Iterable[str]) -> bool:
    """Say whether these are names: none is a number, none is sentence-long, and most are not empty."""
    stripped = [name.strip() for name in names]
    return all(not _is_number(name) and len(name) <= 200 for name in stripped) and 2 * sum(
        bool(name) and name[0] not in "{[" for name in stripped
    ) > len(stripped)


def _is_number(cell: str) -> bool:
    return bool(cell.strip()) and number(cell) is not None


def _repeats_header(cells: list[str], names: list[str]) -> bool:
    return cells[0] == names[0] and _is_header(cells)


def _shared(cells: list[str], names: list[str]) -> bool:
    return 2 * len(set(cells) & set(names)) >= min(len(set(cells)), len(set(names)))
