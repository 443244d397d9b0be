"""Offline readers: the logs that people already have, each format in a file of its own, as a :class:`Run`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from foreshock.errors import ReadError
from foreshock.run import Run
from foreshock.sources import database
from foreshock.sources.find import find_runs, open_folder
from foreshock.sources.formats import read_file


def open_run(path: str | os.PathLike[str]) -> Run:
    """Read a run from a run directory, a checkpoint, a folder of checkpoints, or any log of a known format.

    What was read but not used is counted in :attr:`Run.skipped`; of a foreign log, ``run.identity["source"]`` holds
    the format and ``{original key: key}``.

    Raises:
        ReadError: nothing is there, or nothing there can be read as a run; the message names what was tried.
    """
    place = Path(path)
    try:
        is_folder, is_there = place.is_dir(), place.exists() or database.run_in(place) is not None
    except (OSError, ValueError) as error:  # a name too long, or with a NUL byte in it
        raise ReadError(
            f"{str(place)!r} is no usable path ({error}). Pass a log file or the folder of a run."
        ) from error
    if not is_there:
        raise ReadError(f"{str(place)!r} does not exist. Pass a log file or the folder of a run.")
    return open_folder(place) if is_folder else read_file(place)


def describe(run: Run) -> dict[str, Any]:
    """Return what was read: path, format, rows, first and last step, values a key, where keys come from, skipped."""
    source = run.identity.get("source", {})
    firsts = [int(series.steps[0]) for series in run.series.values() if len(series)]
    firsts += [block.first_step for block in run.blocks[:1]]
    names: dict[str, list[str]] = {}
    for original, name in source.get("keys", {}).items():
        names.setdefault(name, []).append(original)
    return {
        "path": None if run.path is None else str(run.path),
        "format": source.get("format", "Foreshock run directory"),
        "rows": source.get("rows"),
        "blocks": len(run.blocks),
        "step_key": source.get("step_key"),
        "steps": [min(firsts), run.last_step] if firsts else None,
        "distinct_steps": _distinct_steps(run),
        "keys": {
            name: {"values": len(run.series.get(name, ())), "from": names.get(name, [name])}
            for name in dict.fromkeys((*run.series, *names))
        },
        "summary": dict(run.identity.get("summary", {})),
        "notices": dict(run.notices),
        "skipped": dict(run.skipped),
    }


def _distinct_steps(run: Run) -> int:
    arrays = {id(series.steps.base): series.steps for series in run.series.values() if len(series)}
    return len(np.unique(np.concatenate(list(arrays.values())))) if arrays else 0


__all__ = ["describe", "find_runs", "open_run"]
