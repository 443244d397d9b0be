"""prime-rl's token exports: ``token_exports/step_N/rank_R.jsonl``, one sequence a line, schema version 1.

A line holds a whole sequence, prompt included. ``trainer_logprobs`` are of the policy that is being updated,
``inference_logprobs`` of the sampler; both are aligned with ``token_ids``, and a value that was not finite is null. The
sampler's are exactly 0.0 where it sampled nothing. A token outside the loss mask with another value was sampled: its
node is shared by several branches and trained in another of them, so that it is context here and no observation.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path

import msgspec

from foreshock.errors import ReadError
from foreshock.sources import compressed
from foreshock.sources.dumps.tokens import LARGEST_STEP, LONGEST_LINE, UNEVEN, DumpBatch, Row, batches, row_of

NAME = "prime-rl token export"
KEYS = {"inference_logprobs": "rollout", "trainer_logprobs": "policy", "rewards": "reward", "entropy": "entropy"}
FIRST_STEP = 0
SCHEMA = 1
MARKER = "STABLE"

OTHER_STEP = "records of another step than their file's"

Column = list[float | None]


class Record(msgspec.Struct):
    """The fields of a line that are used; all lists have one entry a token."""

    schema_version: int
    step: int
    token_ids: list[int]
    loss_mask: list[bool]
    inference_logprobs: Column
    trainer_logprobs: Column
    export_step: int | None = None
    rewards: Column | None = None
    advantages: Column | None = None
    entropy: Column | None = None


def looks_like(start: bytes) -> bool:
    """Say whether a file starts with a record of a token export."""
    return start.lstrip().startswith(b"{") and b'"schema_version"' in start[:4096] and b'"export_step"' in start[:4096]


def is_complete(path: Path) -> bool:
    """Say whether all workers had written their part of the step: its folder then holds a marker."""
    return (path.parent / MARKER).exists()


def read(path: Path, skipped: Counter[str]) -> Iterator[DumpBatch]:
    """Read one file, line by line. Its step is that of its first record.

    Raises:
        ReadError: the file cannot be opened, or is of another schema version.
    """
    records = _records(path, skipped)
    first = next(records, None)
    if first is not None:
        step = _step(first)
        yield from batches(step, _rows(chain([first], records), step, skipped), skipped)


def _records(path: Path, skipped: Counter[str]) -> Iterator[Record]:
    decoder = msgspec.json.Decoder(Record)
    for line in compressed.lines(path, skipped, LONGEST_LINE):
        try:
            record: Record | None = decoder.decode(line)
        except (ValueError, RecursionError):
            record = None
        if record is None or not 0 <= _step(record) < LARGEST_STEP:
            skipped[compressed.TORN] += 1
            continue
        if record.schema_version != SCHEMA:
            raise ReadError(
                f"{str(path)!r} has schema_version {record.schema_version}, this version of Foreshock reads {SCHEMA}. "
                "Upgrade Foreshock."
            )
        yield record


def _rows(records: Iterable[Record], step: int, skipped: Counter[str]) -> Iterator[Row]:
    for record in records:
        if _step(record) != step:
            skipped[OTHER_STEP] += 1
            continue
        row = row_of(
            record.token_ids,
            record.loss_mask,
            {"policy": record.trainer_logprobs, "rollout": record.inference_logprobs},
            reward=_reward(record),
            advantages=record.advantages,
            entropy=record.entropy,
        )
        if row is None:
            skipped[UNEVEN] += 1
        else:
            yield replace(row, sampled=row.log_probs["rollout"] != 0)


def _step(record: Record) -> int:
    return record.step if record.export_step is None else record.export_step


def _reward(record: Record) -> float:
    """Return the reward of the sequence, which stands at each of its tokens; NaN when it is not recorded."""
    known = (value for value in record.rewards or () if value is not None)
    return next(known, math.nan)
