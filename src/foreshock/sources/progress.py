"""Progress of readers that take their time, on stderr, for a person at a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

Item = TypeVar("Item")

PATIENCE = 2.0
"""Seconds after which progress is shown."""

_bars: list[str] = []  # the one that is on the screen: a reader of one file is silent inside one of many


def tracked(items: Iterable[Item], total: int | None, unit: str) -> Iterator[Item]:
    """Yield the items; once that has taken longer than :data:`PATIENCE`, show how many of ``total`` are done.

    ``total`` is None where nobody knows it. Inside items that are shown themselves, nothing is shown.
    """
    start = time.monotonic()
    iterator = iter(items)
    for done, item in enumerate(iterator, start=1):
        yield item
        if time.monotonic() - start > PATIENCE and not _bars and sys.stderr is not None and sys.stderr.isatty():
            yield from _shown(iterator, done, total, unit)


def _shown(items: Iterator[Item], done: int, total: int | None, unit: str) -> Iterator[Item]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = BarColumn(), MofNCompleteColumn(), TextColumn(unit), TimeRemainingColumn()
    _bars.append(unit)
    try:
        with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
            task = progress.add_task("", total=total, completed=done)
            for item in items:
                yield item
                progress.advance(task)
    finally:
        _bars.remove(unit)


@contextmanager
def waiting(text: str) -> Iterator[None]:
    """Show what is waited for, for as long as it takes."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(text):
        yield
