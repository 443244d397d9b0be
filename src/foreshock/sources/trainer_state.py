"""``trainer_state.json`` of the Hugging Face Trainer and TRL, checkpoint folders, and folders of checkpoints."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foreshock.errors import ReadError
from foreshock.run import Run
from foreshock.sources import compressed
from foreshock.sources.jsonl import decode
from foreshock.sources.rows import Rows

FORMAT = "trainer_state.json"
FILE = "trainer_state.json"
LARGEST_DOCUMENT = 100 * 2**20
"""Bytes. A JSON document has to be in memory as a whole, so that there is a limit."""

TORN = "torn ends of JSON documents"
OTHER_BRANCHES = "checkpoints of a branch that was left"


@dataclass(frozen=True, slots=True)
class State:
    """One state as it stands on disk: the rows of its history, and its other fields."""

    path: Path
    history: list[Any]
    fields: Mapping[str, Any]
    torn: bool


def looks_like(start: bytes) -> bool:
    """Say whether this is one JSON document with a ``log_history``, or a list of objects."""
    opening = start.lstrip()
    return (opening.startswith(b"{") and b'"log_history"' in start) or opening[:1] + opening[1:].lstrip()[:1] == b"[{"


def read(path: Path) -> Run:
    """Read one ``trainer_state.json``, or the list of rows that ``log_history`` alone would be.

    Of a document whose end is missing, the whole rows are read.

    Raises:
        ReadError: the file cannot be opened, or holds no list of rows.
    """
    return _run(_load(path))


def states_in(folder: Path) -> list[Path]:
    """Return the states of a checkpoint, or of a folder and the checkpoints in it."""
    own = [folder / FILE] if (folder / FILE).is_file() else []
    return own + sorted(path for path in folder.glob(f"*/{FILE}") if path.is_file())


def has_states(folder: Path) -> bool:
    """Say whether this is a checkpoint or a folder of checkpoints, and not one of several such folders."""
    if (folder / FILE).is_file():
        return True
    return bool(states_in(folder)) and not any(path.is_file() for path in folder.glob(f"*/*/{FILE}"))


def run_paths(folder: Path) -> list[Path]:
    """Return the folder itself when its states are of one run, else the folders of all states."""
    firsts = {rows[:1] for rows in map(tuple, _digests(states_in(folder)).values())}
    return [folder] if len(firsts) <= 1 else [path.parent for path in states_in(folder)]


def read_folder(folder: Path) -> Run:
    """Read a checkpoint or a folder of checkpoints. States that are prefixes of each other are one run.

    The state with the longest history is taken. A checkpoint with the same beginning that went another way, such as
    one that was written before a resume, is counted.

    Raises:
        ReadError: no state can be read, or the folder holds states of different runs.
    """
    paths = states_in(folder)
    digests = _digests(paths)
    if not digests:
        raise ReadError(f"{str(folder)!r} holds {len(paths)} {FILE}, of which none can be read. Pass a whole one.")
    longest = max(digests, key=lambda path: len(digests[path]))
    branches = [path for path, rows in digests.items() if rows != digests[longest][: len(rows)]]
    strangers = [path for path in branches if digests[path][0] != digests[longest][0]]
    if strangers:
        listed = ", ".join(str(path.parent) for path in (longest, *strangers[:4]))
        raise ReadError(f"{str(folder)!r} holds checkpoints of different runs. Pass one of them: {listed}.")
    run = _run(_load(longest))
    run.skipped["unreadable checkpoints"] += len(paths) - len(digests)
    run.skipped[OTHER_BRANCHES] += len(branches)
    run.skipped = +run.skipped
    return run


def _run(state: State) -> Run:
    rows = Rows(null_is_nan=True)  # the Trainer logs no empty values, so that a null is a NaN that was rewritten
    for row in state.history:
        if isinstance(row, dict):
            rows.add(row)
        else:
            rows.skipped["rows that are no objects"] += 1
    rows.skipped[TORN] += state.torn
    if not rows.count and state.history:
        raise ReadError(f"{str(state.path)!r} has a log_history without a row of numbers.")
    run = rows.run(state.path, FORMAT)
    if state.fields:
        run.identity = {**run.identity, "trainer_state": dict(state.fields)}
    return run


def _load(path: Path) -> State:
    parts, size = [], 0
    skipped: Counter[str] = Counter()
    for chunk in compressed.chunks(path, skipped):
        parts.append(chunk)
        size += len(chunk)
        if size > LARGEST_DOCUMENT:
            raise ReadError(
                f"{str(path)!r} is a JSON document of over {LARGEST_DOCUMENT // 2**20} MB. Pass its rows as JSONL."
            )
    content = b"".join(parts).removeprefix(b"\xef\xbb\xbf")
    try:
        document = decode(content)
    except (ValueError, RecursionError):
        return State(path, _salvaged(path, content), {}, torn=True)
    history = document.get("log_history") if isinstance(document, dict) else document
    if not isinstance(history, list):
        raise ReadError(f"{str(path)!r} is JSON, but has no log_history, the list of logged rows.")
    fields = document if isinstance(document, dict) else {}
    plain = {key: value for key, value in fields.items() if isinstance(value, (int, float, str))}
    return State(path, history, plain, torn=bool(skipped[compressed.TORN_END]))


def _salvaged(path: Path, content: bytes) -> list[Any]:
    """Return the whole rows at the start of a damaged document."""
    decoded = compressed.text(content)
    start = decoded.find('"log_history"')
    start = decoded.find("[", max(start, 0))
    rows = list(_whole_rows(decoded, start + 1)) if start >= 0 else []
    if not rows:
        raise ReadError(f"{str(path)!r} is a damaged JSON document without a whole row in its log_history.")
    return rows


def _whole_rows(decoded: str, position: int) -> Iterator[Any]:
    decoder = json.JSONDecoder()
    while (position := decoded.find("{", position)) >= 0:
        try:
            row, position = decoder.raw_decode(decoded, position)
        except (ValueError, RecursionError):
            return
        yield row
        if not decoded[position : position + 200].lstrip().startswith(","):
            return


def _digests(paths: list[Path]) -> dict[Path, list[int]]:
    """Return a hash a row for each state that can be read: of the row's text, since a NaN does not equal itself.

    One state at a time is in memory.
    """
    digests = {}
    for path in paths:
        with contextlib.suppress(ReadError):
            digests[path] = [hash(repr(row)) for row in _load(path).history]
    return digests
