"""SkyRL's ``global_step_{N}_training_input.pkl`` of ``trainer.dump_data_batch``: a pickled ``TrainingInputBatch``.

``sequences`` are ``(B, S)``; everything else covers the last R positions, ``(B, R)``, where the responses stand:
``response_mask`` is 1 on the whole response, ``loss_mask`` only on what the policy sampled. ``action_log_probs`` are
of the policy before the update, ``rollout_logprobs`` of the sampler, ``base_action_log_probs`` of the reference. The
step is in the name only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from foreshock.batch import TokenBatch
from foreshock.errors import ReadError
from foreshock.sources import compressed
from foreshock.sources.dumps import tensors, unpickle
from foreshock.sources.dumps.tokens import DumpBatch, digest, step_in_name

NAME = "SkyRL training input"
KEYS = {
    "action_log_probs": "old",
    "rollout_logprobs": "rollout",
    "base_action_log_probs": "ref",
    "rewards": "reward",
}
FIRST_STEP = 1
POLICIES = {"action_log_probs": "old", "rollout_logprobs": "rollout", "base_action_log_probs": "ref"}
LARGEST_FILE = 8 * 2**30
"""Bytes; a batch has to be in memory as a whole."""


def looks_like(start: bytes) -> bool:
    """Say whether this is a pickle that names SkyRL's training batch."""
    return start.startswith(b"\x80") and b"training_batch" in start[:4096]


def read(path: Path, skipped: Counter[str]) -> Iterator[DumpBatch]:
    """Read one file, which is one batch.

    Raises:
        ReadError: the file is damaged, no training batch, holds what is refused, or its name says no step.
        MissingExtra: it holds tensors of torch, which is not installed.
    """
    step = step_in_name(path)
    batch = unpickle.load(path, _content(path, skipped))
    if not isinstance(batch, dict):
        raise ReadError(f"{str(path)!r} is no training batch of SkyRL, but holds a {type(batch).__name__}.")
    try:
        yield _dump_batch(step, batch)
    except KeyError as error:
        raise ReadError(f"{str(path)!r} is no training batch of SkyRL: it has no {error}.") from error


def _content(path: Path, skipped: Counter[str]) -> bytes:
    parts, size = [], 0
    for chunk in compressed.chunks(path, skipped):
        parts.append(chunk)
        size += len(chunk)
        if size > LARGEST_FILE:
            raise ReadError(f"{str(path)!r} is over {LARGEST_FILE >> 30} GB, too much for one batch.")
    return b"".join(parts)


def _dump_batch(step: int, batch: Mapping[str, Any]) -> DumpBatch:
    sequences, loss = _tensor(batch, "sequences"), _tensor(batch, "loss_mask") != 0
    response, attended = _tensor(batch, "response_mask") != 0, _tensor(batch, "attention_mask") != 0
    length = loss.shape[1]
    for key, found, expected in (("response_mask", response, loss), ("attention_mask", attended, sequences)):
        if found.shape != expected.shape:
            raise ReadError(f"{key} has shape {found.shape}, expected {expected.shape}.")
    if sequences.shape[1] < length or sequences.dtype.kind not in "iu":
        raise ReadError(f"sequences {sequences.shape} of {sequences.dtype} hold no responses of {length} token ids.")
    log_probs = {policy: _values(batch, key, loss.shape) for key, policy in POLICIES.items()}
    rewards = _values(batch, "rewards", loss.shape)
    return DumpBatch(
        step=step,
        tokens=TokenBatch(
            response_mask=loss & response,
            observation_mask=response & ~loss,
            log_probs={policy: values for policy, values in log_probs.items() if values is not None},
            token_ids=sequences[:, sequences.shape[1] - length :].astype(np.int64),
        ),
        prompts=_prompts(sequences, attended, response),
        rewards=np.full(len(loss), np.nan) if rewards is None else np.where(response, rewards, 0).sum(1),
        advantages=_values(batch, "advantages", loss.shape),
    )


def _prompts(
    sequences: npt.NDArray[Any], attended: npt.NDArray[np.bool_], response: npt.NDArray[np.bool_]
) -> npt.NDArray[np.int64]:
    """Return a digest of each prompt, ``(B,)``: what the model attends to before the first position of the response."""
    starts = sequences.shape[1] - response.shape[1] + response.argmax(1) if response.size else [0] * len(sequences)
    rows = zip(sequences, attended, starts, strict=True)
    return np.array([digest(ids[:start][seen[:start]]) for ids, seen, start in rows], np.int64)


def _values(batch: Mapping[str, Any], key: str, shape: tuple[int, ...]) -> npt.NDArray[Any] | None:
    if batch.get(key) is None:
        return None
    found = _tensor(batch, key)
    if found.shape != shape:
        raise ReadError(f"{key} has shape {found.shape}, expected {shape}, the shape of loss_mask.")
    return found.astype(np.float64)


def _tensor(batch: Mapping[str, Any], key: str) -> npt.NDArray[Any]:
    """Return a tensor ``(B, …)`` of a batch, whichever way its version wrote it."""
    found = _decoded(batch[key])
    if found.ndim != 2:
        raise ReadError(f"{key} has shape {found.shape}, expected two dimensions, samples by tokens.")
    return found


def _decoded(value: Any) -> npt.NDArray[Any]:
    if isinstance(value, bytes):
        return tensors.array(tensors.load(value))
    if isinstance(value, dict) and value.get("format") == "torch" and isinstance(value.get("data"), bytes):
        return tensors.array(tensors.load(value["data"]))
    if isinstance(value, dict):
        try:
            flat = np.frombuffer(value["data"], dtype=np.dtype(value["dtype"]))
            return tensors.array(flat.reshape(value["shape"]))
        except (LookupError, TypeError, ValueError) as error:
            raise ReadError(f"a tensor of the batch is damaged ({error}).") from error
    return tensors.array(value)
