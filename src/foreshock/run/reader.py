"""Reading a run directory: once, or again and again while a training process writes it."""

from __future__ import annotations

import os
from bisect import bisect
from collections.abc import Iterator, Mapping
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec

from foreshock.errors import CorruptRecord, ReadError
from foreshock.run.block import Block
from foreshock.run.directory import BLOCKS, FINDINGS, METRICS, RUN, Record, is_step, read_sessions
from foreshock.run.model import Run
from foreshock.run.stored import StoredBlocks, keep_on_disk

STEP_KEYS = {METRICS: "step", BLOCKS: "last_step"}


def read_run_directory(path: str | os.PathLike[str], *, bounded: bool = False) -> Run:
    """Read a run directory, finished, running or killed.

    Torn or damaged lines and superseded records are skipped and counted in :attr:`Run.skipped`. ``bounded``: thin older
    rows of long series, as the process that trains does.

    Raises:
        ReadError: the path is not a run directory, or was written by a later version.
    """
    reader = RunReader(path, bounded=bounded)
    run = reader.read()
    for name in reader.unfinished():
        run.skipped[f"torn or damaged lines in {name}"] += 1
    return run


def read_findings(path: str | os.PathLike[str]) -> list[Record]:
    """Return the findings that were raised while a run was watched, oldest first."""
    file = Path(path) / FINDINGS
    lines = file.read_bytes().splitlines() if file.is_file() else []
    return [record for record in map(_decoded, lines) if record is not None]


class RunReader:
    """Reads a run directory; a further read costs only what was written since. ``bounded``: see :attr:`Run.bounded`.

    Raises:
        ReadError: the path is not a run directory.
    """

    def __init__(self, path: str | os.PathLike[str], *, bounded: bool = False) -> None:
        self._bounded = bounded
        self.folder = Path(path)
        if not (self.folder / RUN).is_file():
            raise ReadError(
                f"{str(self.folder)!r} is not a run directory: it holds no {RUN}. Pass a folder that a watch wrote."
            )
        self._blocks_file = (self.folder / BLOCKS).absolute()
        self._limits: list[float] = []
        self._start_over(self._limits)

    def read(self) -> Run:
        """Return the run as it stands, without a last line that is still being written; the same object every time.

        A session that was opened since, or a file that shrank, makes it read everything anew, into a new object.

        Raises:
            ReadError: ``run.json`` is damaged, or was written by a later version.
        """
        sessions = read_sessions(self.folder)
        limits = _limits(sessions)
        shrunk = any(_size(self.folder / name) < offset for name, offset in self._offsets.items())
        if shrunk or limits != self._limits:
            self._start_over(limits)
        latest = sessions[-1] if sessions else {}
        self.run.notices = dict(_mapping(latest.get("notices")))
        state = {key: latest.get(key) for key in ("started", "ended", "status")} if latest else {}
        self.run.identity = {**_mapping(latest.get("identity")), **state}
        for name, add in ((METRICS, self._add_row), (BLOCKS, self._add_block)):
            for record in self._new_records(name):
                if self._is_current(record):
                    add(record)
        return self.run

    def unfinished(self) -> list[str]:
        """Return the files whose end is no whole line: a writer was killed, or is writing at this moment."""
        return [name for name, offset in self._offsets.items() if _size(self.folder / name) > offset]

    def _start_over(self, limits: list[float]) -> None:
        self.run = Run(path=self.folder, bounded=self._bounded, blocks=StoredBlocks())
        self._limits = limits
        self._offsets = {METRICS: 0, BLOCKS: 0}

    def _new_records(self, name: str) -> Iterator[Record]:
        """Yield the records of the lines that were finished since the last read and that say their step."""
        for line in self._new_lines(name):
            record = _decoded(line)
            if record is None:
                self.run.skipped[f"torn or damaged lines in {name}"] += 1
            elif is_step(record.get(STEP_KEYS[name])):
                start = self._offsets[name] - len(line)
                yield {**record, "step": record[STEP_KEYS[name]], "place": (start, len(line))}
            else:
                self.run.skipped[f"records without a step in {name}"] += 1

    def _new_lines(self, name: str) -> Iterator[bytes]:
        path = self.folder / name
        if not path.is_file():
            return
        with open(path, "rb") as file:
            file.seek(self._offsets[name])
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._offsets[name] += len(line)
                if line.strip():
                    yield line

    def _is_current(self, record: Record) -> bool:
        """Whether no later session supersedes a record."""
        session, limits = record.get("session", 0), self._limits
        current = not isinstance(session, int) or session >= len(limits) or record["step"] <= limits[session]
        if not current:
            self.run.skipped["superseded by a later session"] += 1
        return current

    def _add_row(self, record: Record) -> None:
        self.run.append_scalars(record["step"], _mapping(record.get("values")))

    def _add_block(self, record: Record) -> None:
        try:
            block = keep_on_disk(Block.from_record(record), self._blocks_file, *record["place"])
            place = bisect(self.run.blocks, block.last_step, key=attrgetter("last_step"))
            self.run.blocks.insert(place, block)
        except CorruptRecord:
            self.run.skipped["damaged blocks"] += 1


def _limits(sessions: list[Record]) -> list[float]:
    """Return for each session the last step that no later session supersedes."""
    limits: list[float] = [float("inf")] * len(sessions)
    lowest = float("inf")
    for position in range(len(sessions) - 1, -1, -1):
        limits[position] = lowest
        lowest = min(lowest, float(sessions[position].get("start_step", 0)))
    return limits


def _decoded(line: bytes) -> Record | None:
    try:
        record = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return record if isinstance(record, dict) else None


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
