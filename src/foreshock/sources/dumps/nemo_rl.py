"""NeMo-RL's ``train_data_step{N}.jsonl``: one sample a line, each field in a list of one; the step is in the name only.

A row is right-padded; ``input_lengths`` says where it ends. ``prev_logprobs`` are of the policy before the update,
``generation_logprobs`` of the sampler; position 0 has none, the others are aligned with ``token_ids``. With
``force_on_policy_ratio`` the first are all zero, which counts as missing. Rows with ``sample_loss_mask`` 0 are not
trained and left out.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from foreshock.sources import compressed
from foreshock.sources.dumps.tokens import LONGEST_LINE, UNEVEN, DumpBatch, Row, batches, row_of, step_in_name

NAME = "NeMo-RL train data"
KEYS = {"generation_logprobs": "rollout", "prev_logprobs": "old", "rewards": "reward"}
FIRST_STEP = 1
UNTRAINED = "rows with sample_loss_mask 0"

Column = list[float | None]


class Record(msgspec.Struct):
    """The fields of a line that are used, each in a list of one."""

    token_ids: list[list[int]]
    token_loss_mask: list[list[float]]
    generation_logprobs: list[Column]
    prev_logprobs: list[Column]
    input_lengths: list[int] = []
    sample_loss_mask: list[float] = []
    rewards: list[float | None] = []
    advantages: list[Column | float | None] = []


def looks_like(start: bytes) -> bool:
    """Say whether a file starts with a sample of NeMo-RL that has token ids."""
    return start.lstrip().startswith(b"{") and all(key in start for key in (b'"input_lengths"', b'"token_ids"'))


def read(path: Path, skipped: Counter[str]) -> Iterator[DumpBatch]:
    """Read one file, line by line.

    Raises:
        ReadError: the file cannot be opened, or its name says no step.
    """
    yield from batches(step_in_name(path), _rows(path, skipped), skipped)


def _rows(path: Path, skipped: Counter[str]) -> Iterator[Row]:
    decoder = msgspec.json.Decoder(Record)
    for line in compressed.lines(path, skipped, LONGEST_LINE):
        record = _decoded(line, decoder)
        if record is None:
            skipped[compressed.TORN] += 1
        elif record.sample_loss_mask[:1] == [0]:
            skipped[UNTRAINED] += 1
        else:
            row = _row(record)
            if row is None:
                skipped[UNEVEN] += 1
            else:
                yield row


def _decoded(line: bytes, decoder: msgspec.json.Decoder[Record]) -> Record | None:
    try:
        return decoder.decode(line)
    except (ValueError, RecursionError):
        pass
    try:
        return msgspec.convert(json.loads(line), Record)  # Python's own decoder knows the NaN that Python writes
    except (ValueError, RecursionError):
        return None


def _row(record: Record) -> Row | None:
    parts: list[list[list[Any]]] = [
        record.token_ids,
        record.token_loss_mask,
        record.generation_logprobs,
        record.prev_logprobs,
    ]
    if any(len(part) != 1 for part in parts):
        return None
    end = record.input_lengths[0] if record.input_lengths else None
    ids, mask, rollout, old = (part[0][:end] for part in parts)
    reward = record.rewards[0] if record.rewards else None
    advantage = record.advantages[0] if record.advantages else None
    return row_of(
        ids,
        mask,
        {"old": old, "rollout": rollout},
        reward=math.nan if reward is None else reward,
        advantages=advantage[:end] if isinstance(advantage, list) else None,
    )
