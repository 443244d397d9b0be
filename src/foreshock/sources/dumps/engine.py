"""Where the map runs: in this process, in several, or on Ray. The results come in the order of the files, always."""

from __future__ import annotations

import multiprocessing
import os
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast

from foreshock.errors import InputError, MissingExtra, ReadError
from foreshock.sketch import load_compiled
from foreshock.sources.dumps.formats import FORMATS, Dump
from foreshock.sources.dumps.summary import StepSummary, summarise

ENGINES = ("local", "ray")
IN_FLIGHT = 4
"""Files per worker that are handed to a Ray of our own ahead of the one that is waited for; bounds the results."""

WORTH_COMPILING = 8 * 2**30
"""Bytes of a dump from which compiled code counts: it saves 20 ns a token, and takes up to four seconds to load."""


@dataclass(slots=True)
class FileResult:
    """What the map returns of one file: a summary, None when the file holds nothing, and why it could not be read."""

    summary: StepSummary | None = None
    skipped: Counter[str] = field(default_factory=Counter)
    error: str = ""


def is_large(dump: Dump) -> bool:
    """Say whether compiled code saves more on a dump than it takes to load."""
    return sum(file.stat().st_size for file in dump.files if file.exists()) >= WORTH_COMPILING


def map_file(format_name: str, compiled: bool, path: Path) -> FileResult:
    """Read and summarise one file, one batch at a time. A file that cannot be read is a result, not an error.

    ``compiled``: count with compiled code where it can be loaded.

    Raises:
        MissingExtra: a package that the format needs is not installed.
    """
    if compiled:
        load_compiled()
    known = next(known for known in FORMATS if known.name == format_name)
    result = FileResult()
    try:
        result.summary = summarise(known.read(path, result.skipped), result.skipped)
    except ReadError as error:
        result.error = str(error)
    return result


def map_files(dump: Dump, *, engine: str = "local", workers: int = 1, compiled: bool = False) -> Iterator[FileResult]:
    """Map every file of a dump. ``compiled``: count with compiled code, which every process has to load.

    Raises:
        InputError: the engine is unknown, or fewer than one worker was asked for.
        MissingExtra: the engine or the format needs a package that is not installed.
    """
    if engine not in ENGINES or workers < 1:
        raise InputError(
            f"got engine {engine!r} with {workers} workers, expected one of {', '.join(ENGINES)} with at least one."
        )
    how = dump.format.name, compiled
    if engine == "ray":
        return _on_ray(how, dump.files, workers)
    if workers == 1:
        return map(partial(map_file, *how), dump.files)
    return _in_processes(how, dump.files, workers)


def _in_processes(how: tuple[str, bool], files: Sequence[Path], workers: int) -> Iterator[FileResult]:
    context = multiprocessing.get_context("spawn")  # a fork of a process with threads may hang
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        yield from pool.map(partial(map_file, *how), files)


def _on_ray(how: tuple[str, bool], files: Sequence[Path], workers: int) -> Iterator[FileResult]:
    try:
        import ray
    except ImportError as error:
        raise MissingExtra("The engine 'ray'", "'foreshock[ray]'") from error
    started = not ray.is_initialized()
    on_cluster = not started or bool(os.environ.get("RAY_ADDRESS"))
    if started:
        own = {} if on_cluster else {"num_cpus": workers, "include_dashboard": False}
        ray.init(log_to_driver=False, logging_level="warning", **own)
    ahead = workers if on_cluster else IN_FLIGHT * workers  # a cluster has more processors than were asked for
    remote = ray.remote(num_cpus=1)(map_file)
    waiting: deque[Any] = deque()
    try:
        for path in files:
            waiting.append(remote.remote(*how, path.absolute()))
            if len(waiting) >= ahead:
                yield cast(FileResult, ray.get(waiting.popleft()))
        while waiting:
            yield cast(FileResult, ray.get(waiting.popleft()))
    finally:
        if started:
            ray.shutdown()
