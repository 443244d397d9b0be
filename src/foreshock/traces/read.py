"""Reading traces: which of the formats a file or a folder holds, found by its content."""

from __future__ import annotations

import os
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

from foreshock.errors import ReadError
from foreshock.sources import compressed
from foreshock.sources.jsonl import decode_line, objects
from foreshock.traces import completions
from foreshock.traces.episode import Episode, Traces
from foreshock.traces.events import OTHER, Events, is_event
from foreshock.traces.rows import episode_of, is_episode

EVENTS, EPISODES = "one event a line", "one episode a line"
NO_EPISODE = "lines that are neither an event nor an episode"

RUN_FILES = ("run.json", "trainer_state.json", "metrics.jsonl")
"""A folder with one of these holds a run, and its traces are only a part of it."""

LABELS = ("success", "reward", "advantage", "termination", "tokens", "cost", "solution")
"""Fields of an episode that a trace may lack."""

_FIRST_LINES = 20


def is_traces(path: str | os.PathLike[str]) -> bool:
    """Say whether a file or folder holds traces, by its first bytes; False for what cannot be opened.

    Raises:
        ReadError: it is a damaged parquet file.
        MissingExtra: it is a parquet file, and pyarrow is not installed.
    """
    return bool(_trace_files(Path(path)))


def read_traces(path: str | os.PathLike[str]) -> Traces:
    """Read the episodes of a file, or of all files of a folder that hold traces.

    Raises:
        ReadError: nothing there holds an episode.
        MissingExtra: it is a parquet file, and pyarrow is not installed.
    """
    place = Path(path)
    files = _trace_files(place)
    skipped: Counter[str] = Counter()
    tables = [file for file in files if _is_parquet(file)]
    found: list[tuple[str, list[Episode]]] = []
    if tables:
        found.append((completions.FORMAT, completions.read(tables, skipped)))
    found += [_read_lines(file, skipped) for file in files if file not in tables]
    episodes = [episode for _, part in found for episode in part]
    if not episodes:
        raise ReadError(
            f"{str(place)!r} holds no traces of an agent. Expected JSONL with one event or one episode a line "
            "(messages, prompt and completion, or input and output), or the completions_*.parquet files of TRL."
        )
    formats = ", ".join(dict.fromkeys(name for name, part in found if part))
    return Traces(place, formats, episodes, +skipped)


def describe(traces: Traces) -> dict[str, Any]:
    """Return what was read, in the shape of :func:`foreshock.sources.describe`: a row is an episode."""
    episodes = traces.episodes
    values = {name: sum(getattr(episode, name) not in (None, "") for episode in episodes) for name in LABELS}
    counts = {name: sum(len(getattr(episode, name)) for episode in episodes) for name in ("turns", "calls")}
    steps = {episode.step for episode in episodes} - {None}
    return {
        "path": str(traces.path),
        "format": traces.format,
        "rows": len(episodes),
        "blocks": None,
        "step_key": "step" if steps else None,
        "steps": None if traces.steps is None else list(traces.steps),
        "distinct_steps": len(steps),
        "keys": {name: {"values": count, "from": [name]} for name, count in (values | counts).items() if count},
        "summary": {},
        "notices": {},
        "skipped": dict(traces.skipped),
    }


def _trace_files(place: Path) -> list[Path]:
    try:
        if not place.is_dir():
            return [place] if _holds_traces(place) else []
        files = sorted((entry for entry in place.iterdir() if entry.is_file()), key=_natural)
    except (OSError, ValueError):
        return []
    if any(file.name in RUN_FILES for file in files):
        return []
    return [file for file in files if _holds_traces(file)]


def _natural(file: Path) -> tuple[int, str]:
    """Order files named by a step, such as 9.jsonl and 10.jsonl, by the number."""
    return (int(file.stem), "") if file.stem.isdecimal() else (0, file.name)


def _holds_traces(file: Path) -> bool:
    try:
        start = compressed.head(file, Counter())
    except ReadError:
        return False
    if start.startswith(completions.MAGIC):
        return completions.is_completions(file)
    lines = start.replace(b"\r", b"\n").split(b"\n")[:_FIRST_LINES]
    rows = [row for line in lines if isinstance(row := decode_line(line), dict)]
    if not rows:  # the first line may be longer than what was read
        rows = list(islice(objects(file, Counter()), 1)) if _opens_a_row(start) else []
    return any(is_event(row) or is_episode(row) for row in rows)


def _opens_a_row(start: bytes) -> bool:
    return start.lstrip().startswith(b"{") and b"\n" not in start.strip()


def _is_parquet(file: Path) -> bool:
    return compressed.head(file, Counter(), size=4) == completions.MAGIC


def _read_lines(file: Path, skipped: Counter[str]) -> tuple[str, list[Episode]]:
    events, episodes = Events(), []
    for count, row in enumerate(objects(file, skipped), start=1):
        if is_event(row):
            events.add(row)
        elif (episode := episode_of(row, f"{file.name}:{count}")) is not None:
            episodes.append(episode)
        else:
            skipped[OTHER if "episode_id" in row and "type" in row else NO_EPISODE] += 1
    return (EVENTS if events.drafts else EPISODES), events.episodes() + episodes
