"""slime's train data: ``--dump-details`` writes ``train_data/{rollout_id}_{rank}.pt``, a step being one rollout.

``rollout_data`` holds one tensor a sample: ``tokens`` with the prompt, and ``loss_masks``, ``log_probs`` (before the
update), ``rollout_log_probs`` (of the sampler) and ``ref_log_probs`` over the response only. Ranks that share their
samples write them several times, some without log-probabilities. Under context parallelism a rank holds a part of each
response's log-probabilities; such columns are left out.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from foreshock.errors import ReadError
from foreshock.sources.dumps import tensors
from foreshock.sources.dumps.tokens import LARGEST_STEP, UNEVEN, DumpBatch, Floats, Row, batches

NAME = "slime train data"
KEYS = {"log_probs": "old", "rollout_log_probs": "rollout", "ref_log_probs": "ref", "raw_reward": "reward"}
FIRST_STEP = 0
POLICIES = {"log_probs": "old", "rollout_log_probs": "rollout", "ref_log_probs": "ref"}
PARTIAL = "log-probabilities of a part of a response only"


def looks_like(start: bytes) -> bool:
    """Say whether this is a file of ``torch.save`` that holds rollout data."""
    return start.startswith(b"PK\x03\x04") and b"rollout_data" in start


def read(path: Path, skipped: Counter[str]) -> Iterator[DumpBatch]:
    """Read one file.

    Raises:
        ReadError: the file cannot be loaded, or is no train data.
        MissingExtra: torch is not installed.
    """
    content = tensors.load(path)
    data = content.get("rollout_data") if isinstance(content, dict) else None
    step = content.get("rollout_id") if isinstance(content, dict) else None
    if not isinstance(data, dict) or not isinstance(step, int) or not 0 <= step < LARGEST_STEP:
        raise ReadError(f"{str(path)!r} is no train data of slime: expected rollout_id and rollout_data in a dict.")
    missing = [key for key in ("tokens", "loss_masks") if not isinstance(data.get(key), list)]
    if missing:
        raise ReadError(f"{str(path)!r} is no train data of slime: no list of {' and '.join(missing)}.")
    yield from batches(step, _rows(data, skipped), skipped)


def _rows(data: Mapping[str, Any], skipped: Counter[str]) -> Iterator[Row]:
    rewards = _rewards(data)
    for position, (ids, mask) in enumerate(zip(data["tokens"], data["loss_masks"], strict=False)):
        token_ids, loss_mask = tensors.array(ids), tensors.array(mask)
        start = len(token_ids) - len(loss_mask) if token_ids.ndim == loss_mask.ndim == 1 else -1
        if start < 0 or token_ids.dtype.kind not in "iu":
            skipped[UNEVEN] += 1
            continue
        log_probs = {}
        for key, policy in POLICIES.items():
            values = _entry(data.get(key), position)
            if values is not None:
                column = _column(values, start, len(token_ids))
                if column is None:
                    skipped[PARTIAL] += 1
                else:
                    log_probs[policy] = column
        advantages = _entry(data.get("advantages"), position)
        yield Row(
            token_ids=token_ids.astype(np.int64),
            response=np.concatenate([np.zeros(start, np.bool_), loss_mask != 0]),
            log_probs=log_probs,
            reward=rewards[position] if position < len(rewards) else math.nan,
            advantages=None if advantages is None else _column(advantages, start, len(token_ids)),
        )


def _entry(column: Any, position: int) -> Any:
    return column[position] if isinstance(column, list) and position < len(column) else None


def _column(values: Any, start: int, length: int) -> Floats | None:
    """Return values over the response as a column over prompt and response, ``(T,)``; None when they do not fit."""
    response = tensors.array(values)
    if response.shape != (length - start,):
        return None
    return np.concatenate([np.zeros(start), response.astype(np.float64)])


def _rewards(data: Mapping[str, Any]) -> Sequence[float]:
    """Return the reward of each sample. ``raw_reward`` is of the whole rollout, ``partition`` names a rank's part."""
    whole, count, part = data.get("raw_reward"), len(data["tokens"]), data.get("partition")
    if not isinstance(whole, list) or not all(isinstance(reward, (int, float)) for reward in whole):
        return ()
    if len(whole) != count and isinstance(part, list) and all(isinstance(i, int) and 0 <= i < len(whole) for i in part):
        whole = [whole[i] for i in part]
    return [float(reward) for reward in whole] if len(whole) == count else ()
