"""TRL's completions: ``completions_XXXXX.parquet``, one file a logged step, with ``log_completions=True``."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from foreshock.errors import MissingExtra, ReadError
from foreshock.traces.episode import Episode
from foreshock.traces.rows import episode_of, number

MAGIC = b"PAR1"
FORMAT = "TRL completions"
REPEATED = "completions that TRL logged again at a later step"
NO_SUM = "completions whose reward columns do not order them as their advantages do"

_OTHERS = ("step", "prompt", "completion", "advantage", "images")


def read(files: Sequence[Path], skipped: Counter[str]) -> list[Episode]:
    """Read the files of one run, in the order of their names.

    TRL writes its latest batch again at each log until a new one is generated: a file that repeats the one before it
    is left out and counted. The reward is the sum of the number columns if that orders the completions of a prompt as
    their advantages do, else the one column that does; else it is unknown, and counted.

    Raises:
        ReadError: a file cannot be opened, or is no table with prompts and completions.
        MissingExtra: pyarrow is not installed.
    """
    rows: list[dict[str, Any]] = []
    before: list[dict[str, Any]] = []
    for file in files:
        batch = list(_rows(file))
        content = [{key: value for key, value in row.items() if key != "step"} for row in batch]
        if repr(content) == repr(before):
            skipped[REPEATED] += len(batch)
        else:
            rows += batch
            before = content
    columns = _reward_columns(rows)
    if columns is None:
        skipped[NO_SUM] += len(rows)
    return [episode for number_, row in enumerate(rows) if (episode := _episode(row, columns or (), number_))]


def is_completions(path: Path) -> bool:
    """Say whether a parquet file holds prompts and completions; its first bytes are known to be those of parquet.

    Raises:
        ReadError: the file is damaged.
        MissingExtra: pyarrow is not installed.
    """
    return {"prompt", "completion"} <= set(_opened(path).schema_arrow.names)


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    pyarrow = _pyarrow()
    file = _opened(path)
    names = [name for name in file.schema_arrow.names if name != "images" and not name.startswith("__index")]
    try:
        for batch in file.iter_batches(batch_size=1024, columns=names):
            yield from batch.to_pylist()
    except (pyarrow.ArrowException, OSError) as error:
        raise _damaged(path, error) from error


def _opened(path: Path) -> Any:
    pyarrow = _pyarrow()
    try:
        return pyarrow.parquet.ParquetFile(path)
    except (pyarrow.ArrowException, OSError) as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> ReadError:
    return ReadError(f"{str(path)!r} is a damaged parquet file ({error}). Copy it again, or leave it out.")


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtra("Reading parquet files", "'foreshock[parquet]'") from error
    return pyarrow


def _episode(row: dict[str, Any], columns: tuple[str, ...], place: int) -> Episode | None:
    values = [value for name in columns if (value := number(row.get(name))) is not None]
    kept = {"step": row.get("step"), "prompt": row["prompt"], "completion": row["completion"]}
    reward = {"reward": sum(values), "advantage": row.get("advantage")} if values else {}
    return episode_of({**kept, **reward}, f"step {row.get('step')}, row {place}")


def _reward_columns(rows: Sequence[dict[str, Any]]) -> tuple[str, ...] | None:
    """Return the columns whose sum orders the completions of each group as their advantages do; None for none."""
    names = tuple(dict.fromkeys(key for row in rows for key, value in row.items() if isinstance(value, float)))
    names = tuple(name for name in names if name not in _OTHERS)
    pairs = [pair for group in _groups(rows) for pair in itertools.pairwise(group)]
    choices = [names, *((name,) for name in names if len(names) > 1)]
    return next((choice for choice in choices if not any(_disagree(pair, choice) for pair in pairs)), None)


def _groups(rows: Sequence[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Yield the rows that TRL compared with each other: in succession, of one prompt, and as many in every group.

    A prompt that was drawn twice in succession makes two groups, each with a mean of its own.
    """
    runs = [list(run) for _, run in itertools.groupby(rows, lambda row: repr((row.get("step"), row["prompt"])))]
    size = math.gcd(*map(len, runs))
    for run in runs:
        yield from (run[start : start + size] for start in range(0, len(run), size))


def _disagree(pair: tuple[dict[str, Any], dict[str, Any]], columns: tuple[str, ...]) -> bool:
    first, second = pair
    advantages = number(first.get("advantage")), number(second.get("advantage"))
    if advantages[0] is None or advantages[1] is None:
        return False
    rewards = [sum(number(row.get(name)) or 0.0 for name in columns) for row in pair]
    return (rewards[1] - rewards[0]) * (advantages[1] - advantages[0]) < 0
