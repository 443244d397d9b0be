"""Blocks whose content stays on disk, so that a run of any length fits in memory.

A block that stands in ``blocks.jsonl`` takes about ten kilobytes, and a run of 10⁶ steps has 10⁵ of them. In memory
:class:`StoredBlocks` keeps seven numbers of it: its steps, where it stands, and what it has. Its sketches, its tokens
and the counters that are not zero are read from the file each time that they are asked for.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, overload

import msgspec

from foreshock.errors import CorruptRecord, ReadError
from foreshock.run.block import Block, TopToken
from foreshock.sketch import LogRatioSketch, codec

V = TypeVar("V")


def keep_on_disk(block: Block, path: Path, start: int, length: int) -> Block:
    """Return a block that reads its content from the line of ``length`` bytes that begins at byte ``start``."""
    kind = _Kind(
        path=path,
        pairs=tuple(block.sketches),
        counters=tuple(block.counters),
        non_zero=tuple(name for name, values in block.counters.items() if any(values)),
        steps=max(map(len, block.counters.values()), default=0),
        slices=tuple(block.top),
    )
    return _stored(block.index, block.first_step, block.last_step, block.workers, _Line(kind, start, length))


class StoredBlocks(Sequence[Block]):
    """Blocks of :func:`keep_on_disk` in the order of their steps, 56 bytes each; a block is made when asked for.

    A block that could not be written to disk is kept as it is.
    """

    def __init__(self) -> None:
        self._rows = array("q")
        self._kinds: list[_Kind] = []
        self._numbers: dict[_Kind, int] = {}
        self._unwritten: list[Block] = []

    @property
    def pairs(self) -> list[str]:
        """The pairs that any of the blocks has."""
        held = [*(kind.pairs for kind in self._kinds), *(block.sketches for block in self._unwritten)]
        return list(dict.fromkeys(pair for pairs in held for pair in pairs))

    def append(self, block: Block) -> None:
        """Add a block after all others; raises what :meth:`insert` raises."""
        self.insert(len(self), block)

    def insert(self, place: int, block: Block) -> None:
        """Add a block before the one at a place.

        Raises:
            CorruptRecord: one of its numbers has more than 64 bits.
        """
        numbers = block.index, block.first_step, block.last_step, block.workers
        try:
            row = array("q", (*numbers, *self._where(block)))
        except OverflowError as error:
            raise CorruptRecord(f"a block record cannot be read ({error}): its numbers are {numbers}") from error
        self._rows[_WIDTH * place : _WIDTH * place] = row

    def _where(self, block: Block) -> tuple[int, int, int]:
        """Return where a line begins, how long it is, and the number of its kind, −1 for a block without a line."""
        if not isinstance(block.sketches, _Sketches):
            self._unwritten.append(block)
            return len(self._unwritten) - 1, 0, -1
        kind, start, length = block.sketches.line
        if kind not in self._numbers:
            self._numbers[kind] = len(self._kinds)
            self._kinds.append(kind)
        return start, length, self._numbers[kind]

    def __len__(self) -> int:
        return len(self._rows) // _WIDTH

    @overload
    def __getitem__(self, place: int) -> Block: ...
    @overload
    def __getitem__(self, place: slice) -> list[Block]: ...
    def __getitem__(self, place: int | slice) -> Block | list[Block]:
        places = range(len(self))[place]
        return self._block(places) if isinstance(places, int) else [self._block(each) for each in places]

    def _block(self, place: int) -> Block:
        index, first, last, workers, start, length, kind = self._rows[_WIDTH * place : _WIDTH * (place + 1)]
        if kind < 0:
            return self._unwritten[start]
        return _stored(index, first, last, workers, _Line(self._kinds[kind], start, length))


_WIDTH = 7


class _Kind(NamedTuple):
    """What a block has; blocks differ little in that.

    ``non_zero``: the counters with a value other than zero. ``steps``: how many values a counter has.
    """

    path: Path
    pairs: tuple[str, ...]
    counters: tuple[str, ...]
    non_zero: tuple[str, ...]
    steps: int
    slices: tuple[str, ...]


class _Line(NamedTuple):
    """One line of a file that is only ever appended to."""

    kind: _Kind
    start: int
    length: int

    def field(self, name: str) -> Mapping[str, Any]:
        """Read one field of the record.

        Raises:
            ReadError: the file is gone.
            CorruptRecord: it holds something else by now.
        """
        path = self.kind.path
        try:
            with open(path, "rb") as file:
                file.seek(self.start)
                found = msgspec.json.decode(file.read(self.length))[name]
        except OSError as error:
            raise ReadError(
                f"{str(path)!r} cannot be read any more ({error.strerror or error}). A run that is open reads its "
                "blocks from there; leave the folder where it is."
            ) from error
        except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
            raise CorruptRecord(
                f"{str(path)!r} holds no block at byte {self.start} any more ({type(error).__name__}). Only "
                "append to the file of a run that is open."
            ) from error
        return found if isinstance(found, dict) else {}


def _stored(index: int, first_step: int, last_step: int, workers: int, line: _Line) -> Block:
    return Block(index, first_step, last_step, _Sketches(line), workers, _Counters(line), _Top(line))


class _Part(Mapping[str, V]):
    """One field of a block's line: the keys are in memory, a value is read when asked for."""

    __slots__ = ("line",)

    def __init__(self, line: _Line) -> None:
        self.line = line

    @property
    def _keys(self) -> tuple[str, ...]:
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        """Whether both are the same field of the same line, where both are on disk."""
        return self.line == other.line if isinstance(other, _Part) else super().__eq__(other)

    __hash__ = None  # type: ignore[assignment]

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)

    def _read(self, field: str, key: str) -> Any:
        if key not in self._keys:
            raise KeyError(key)
        return self.line.field(field)[key]


class _Sketches(_Part[LogRatioSketch]):
    __slots__ = ()

    @property
    def _keys(self) -> tuple[str, ...]:
        return self.line.kind.pairs

    def __getitem__(self, pair: str) -> LogRatioSketch:
        return codec.decode(self._read("sketches", pair))


class _Top(_Part[tuple[TopToken, ...]]):
    __slots__ = ()

    @property
    def _keys(self) -> tuple[str, ...]:
        return self.line.kind.slices

    def __getitem__(self, slice_name: str) -> tuple[TopToken, ...]:
        return tuple(TopToken.from_record(token) for token in self._read("top", slice_name))


class _Counters(_Part[tuple[float, ...]]):
    __slots__ = ()

    @property
    def _keys(self) -> tuple[str, ...]:
        return self.line.kind.counters

    def __getitem__(self, name: str) -> tuple[float, ...]:
        kind = self.line.kind
        if name in kind.counters and name not in kind.non_zero:
            return (0.0,) * kind.steps
        return tuple(map(float, self._read("counters", name)))
