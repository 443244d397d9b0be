"""Rows of evidence in a terminal: one table, or several where the window is too narrow for one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from foreshock.views.words import columns_of, is_numeric, shown

Rows = Sequence[Mapping[str, Any]]

GAP = 2
"""Spaces between two columns."""


class RowsTable:
    """Rows as a table without lines, numbers flush right and, from 40 columns of text on, never cut in two.

    Where the columns do not fit beside each other, there are several tables, each with all columns of text.
    """

    def __init__(self, rows: Rows) -> None:
        self.rows = rows

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for number, columns in enumerate(_parts(self.rows, options.max_width)):
            if number:
                yield Text()
            yield _table(self.rows, columns)


def _parts(rows: Rows, width: int) -> list[list[str]]:
    """Share the columns out to tables of that width; columns of text may be folded to half of it."""
    columns = columns_of(rows)
    numeric = [column for column in columns if is_numeric(rows, column)]
    room = max(width - sum(_width(rows, column) for column in columns if column not in numeric), width // 2)
    parts: list[list[str]] = [[]]
    for column in numeric:
        if parts[-1] and sum(_width(rows, each) for each in (*parts[-1], column)) > room + GAP:
            parts.append([])
        parts[-1].append(column)
    return [[column for column in columns if column not in numeric or column in part] for part in parts]


def _width(rows: Rows, column: str) -> int:
    """Return the least width of a column whose header may take several lines, with the gap after it."""
    return max(map(len, [*column.split(), *(shown(row.get(column)) for row in rows)])) + GAP


def _table(rows: Rows, columns: Sequence[str]) -> Table:
    table = Table(box=None, show_edge=False, pad_edge=False, padding=(0, GAP, 0, 0), header_style="dim")
    for column in columns:
        numeric = is_numeric(rows, column)
        least = _width(rows, column) - GAP if numeric else None
        table.add_column(Text(column), justify="right" if numeric else "left", overflow="fold", min_width=least)
    for row in rows:
        table.add_row(*[Text(shown(row.get(column))) for column in columns])
    return table
