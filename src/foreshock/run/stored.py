"""Blocks whose content stays on disk, so that a run of any length fits in memory.

A block that stands in ``blocks.jsonl`` takes about ten kilobytes, and a run of 10⁶ steps has 10⁵ of them. In memory it
keeps where it stands, which pairs and counters it has, and what was derived from it. Its sketches, its tokens and the
counters that are not zero are read from the file each time that they are asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from foreshock.errors import CorruptRecord, ReadError
from foreshock.run.block import Block, TopToken
from foreshock.sketch import LogRatioSketch, codec

V = TypeVar("V")


def keep_on_disk(block: Block, path: Path, start: int, length: int) -> Block:
    """Return a block that reads its content from the line of ``length`` bytes that begins at byte ``start``."""
    line = _Line(path, start, length)
    non_zero = tuple(name for name, values in block.counters.items() if any(values))
    steps = max(map(len, block.counters.values()), default=0)
    return replace(
        block,
        sketches=_Sketches(line, _shared(tuple(block.sketches))),
        counters=_Counters(line, _shared(tuple(block.counters)), _shared(non_zero), steps),
        top=_Top(line, _shared(tuple(block.top))),
    )


class _Line:
    """One line of a file that is only ever appended to."""

    __slots__ = ("length", "path", "start")

    def __init__(self, path: Path, start: int, length: int) -> None:
        self.path, self.start, self.length = path, start, length

    def field(self, name: str) -> Mapping[str, Any]:
        """Read one field of the record.

        Raises:
            ReadError: the file is gone.
            CorruptRecord: it holds something else by now.
        """
        try:
            with open(self.path, "rb") as file:
                file.seek(self.start)
                found = msgspec.json.decode(file.read(self.length))[name]
        except OSError as error:
            raise ReadError(
                f"{str(self.path)!r} cannot be read any more ({error.strerror or error}). A run that is open reads its "
                "blocks from there; leave the folder where it is."
            ) from error
        except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
            raise CorruptRecord(
                f"{str(self.path)!r} holds no block at byte {self.start} any more ({type(error).__name__}). Only "
                "append to the file of a run that is open."
            ) from error
        return found if isinstance(found, dict) else {}


class _Part(Mapping[str, V]):
    """One field of a block's line: the keys are in memory, a value is read when asked for."""

    __slots__ = ("_keys", "_line")

    def __init__(self, line: _Line, keys: tuple[str, ...]) -> None:
        self._line, self._keys = line, keys

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)

    def _read(self, field: str, key: str) -> Any:
        if key not in self._keys:
            raise KeyError(key)
        return self._line.field(field)[key]


class _Sketches(_Part[LogRatioSketch]):
    __slots__ = ()

    def __getitem__(self, pair: str) -> LogRatioSketch:
        return codec.decode(self._read("sketches", pair))


class _Top(_Part[tuple[TopToken, ...]]):
    __slots__ = ()

    def __getitem__(self, slice_name: str) -> tuple[TopToken, ...]:
        return tuple(TopToken.from_record(token) for token in self._read("top", slice_name))


class _Counters(_Part[tuple[float, ...]]):
    __slots__ = ("_non_zero", "_steps")

    def __init__(self, line: _Line, keys: tuple[str, ...], non_zero: tuple[str, ...], steps: int) -> None:
        super().__init__(line, keys)
        self._non_zero, self._steps = non_zero, steps

    def __getitem__(self, name: str) -> tuple[float, ...]:
        if name in self._keys and name not in self._non_zero:
            return (0.0,) * self._steps
        return tuple(map(float, self._read("counters", name)))


@lru_cache(maxsize=256)
def _shared(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return one tuple for all equal ones: blocks differ little in what they hold."""
    return names
