"""What every reader of a token dump yields: batches of completions, aligned token by token."""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from foreshock.batch import DOUBTED, POLICY_REF, TokenBatch
from foreshock.errors import ReadError

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

LONGEST_LINE = 2**28
"""Bytes; a line of a dump holds a dozen columns of a whole trajectory."""

LARGEST_STEP = 2**53
"""Of a step; a larger one is damage."""

NO_RESPONSE = "sequences without a response token"
UNEVEN = "sequences whose columns differ in length"

BATCH_TOKENS = 1 << 16
"""Tokens, padding included, of a batch that is put together from single rows."""

_STEP_IN_NAME = re.compile(r"step_?(\d{1,15})(?!\d)")


@dataclass(frozen=True, slots=True)
class DumpBatch:
    """Completions of one step.

    ``prompts``: ``(B,)``, a digest of the prompt's token ids; rows with the same one are a group. ``rewards``:
    ``(B,)``, NaN where the dump has none. ``advantages`` and ``entropy``: ``(B, T)`` or None.
    """

    step: int
    tokens: TokenBatch
    prompts: Ints
    rewards: Floats
    advantages: Floats | None = None
    entropy: Floats | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """One sequence as it stands in a dump, prompt included; every array is of shape ``(T,)``.

    ``sampled``: tokens that the policy sampled although they are not trained here; they are no observation.
    """

    token_ids: Ints
    response: Bools
    log_probs: Mapping[str, Floats]
    sampled: Bools | None = None
    reward: float = math.nan
    advantages: Floats | None = None
    entropy: Floats | None = None


def batches(step: int, rows: Iterable[Row], skipped: Counter[str]) -> Iterator[DumpBatch]:
    """Cut prompts off and pad completions into batches of about :data:`BATCH_TOKENS`.

    A completion begins with the first token that the policy sampled; rows without a response token are counted.
    """
    held: list[_Completion] = []
    longest = 0
    for row in rows:
        completion = _completion(row)
        if completion is None:
            skipped[NO_RESPONSE] += 1
            continue
        length = len(completion.columns["token_ids"])
        is_full = max(longest, length) * (len(held) + 1) > BATCH_TOKENS
        if held and (is_full or completion.columns.keys() != held[0].columns.keys()):
            yield _padded(step, held)
            held, longest = [], 0
        held.append(completion)
        longest = max(longest, length)
    if held:
        yield _padded(step, held)


def row_of(
    token_ids: Sequence[int],
    response: Sequence[Any],
    log_probs: Mapping[str, Sequence[float | None]],
    reward: float = math.nan,
    advantages: Sequence[float | None] | None = None,
    entropy: Sequence[float | None] | None = None,
) -> Row | None:
    """Make a row of lists, None in them being NaN; None when they differ in length or hold what is no token id."""
    columns = token_ids, response, *log_probs.values(), advantages, entropy
    if len({len(values) for values in columns if values is not None}) != 1:
        return None
    try:
        ids = np.array(token_ids, np.int64)
    except OverflowError:
        return None
    return Row(
        token_ids=ids,
        response=np.array(response, np.float64) != 0,
        log_probs={name: np.array(values, np.float64) for name, values in log_probs.items()},
        reward=reward,
        advantages=None if advantages is None else np.array(advantages, np.float64),
        entropy=None if entropy is None else np.array(entropy, np.float64),
    )


def step_in_name(path: Path) -> int:
    """Return the step that a file's name says, such as 12 of ``train_data_step12.jsonl``.

    Raises:
        ReadError: the name says no step.
    """
    found = _STEP_IN_NAME.search(path.name)
    if found is None:
        raise ReadError(
            f"{str(path)!r} says no step in its name, and its content says none. Keep the name that its trainer gave."
        )
    return int(found.group(1))


def digest(ids: npt.NDArray[Any]) -> int:
    """Return a number that stands for a sequence of token ids."""
    content = np.ascontiguousarray(ids, dtype="<i8").tobytes()
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little", signed=True)


def pairs(batch: TokenBatch) -> dict[str, tuple[Floats, Floats]]:
    """Return the recorded pairs of a batch, ``{pair: (numerator, denominator)}``, each ``(B, T)``.

    Log-probabilities that a trainer computed before its update belong to the old policy, which is the policy of that
    step: against a reference they make policy/ref.
    """
    found = batch.pairs()
    known = batch.log_probs
    if POLICY_REF not in found and "policy" not in known and {"old", "ref"} <= known.keys():
        found = {POLICY_REF: (known["old"], known["ref"]), **found}
    return found


def placeholders(numerator: Floats, denominator: Floats, response: Bools) -> Bools:
    """Return which response tokens, ``(B, T)``, have a 0.0 in place of a log-probability.

    That is so where one policy is certain and the other far from it (:data:`DOUBTED`), and in rows where one policy
    has nothing but 0.0 and the other has values.
    """
    first, second = numerator == 0, denominator == 0
    single = (first & (denominator < DOUBTED)) | (second & (numerator < DOUBTED))
    whole = np.all(first | ~response, axis=1) ^ np.all(second | ~response, axis=1)
    found: Bools = (single | whole[:, None]) & response
    return found


_LOG_PROBS = "log_probs/"


@dataclass(frozen=True, slots=True)
class _Completion:
    columns: dict[str, npt.NDArray[Any]]
    prompt: int
    reward: float


def _completion(row: Row) -> _Completion | None:
    sampled = row.response if row.sampled is None else row.response | row.sampled
    if not row.response.any():
        return None
    start = int(sampled.argmax())
    columns: dict[str, npt.NDArray[Any]] = {
        "token_ids": row.token_ids[start:],
        "response": row.response[start:],
        "observation": ~sampled[start:],
        **{_LOG_PROBS + name: values[start:] for name, values in row.log_probs.items()},
    }
    for name, values in (("advantages", row.advantages), ("entropy", row.entropy)):
        if values is not None:
            columns[name] = values[start:]
    return _Completion(columns, digest(row.token_ids[:start]), row.reward)


def _padded(step: int, rows: Sequence[_Completion]) -> DumpBatch:
    width = max(len(row.columns["token_ids"]) for row in rows)
    table = {name: _column([row.columns[name] for row in rows], width) for name in rows[0].columns}
    return DumpBatch(
        step=step,
        tokens=TokenBatch(
            response_mask=table["response"],
            observation_mask=table["observation"],
            log_probs={name[len(_LOG_PROBS) :]: table[name] for name in table if name.startswith(_LOG_PROBS)},
            token_ids=table["token_ids"],
        ),
        prompts=np.array([row.prompt for row in rows], np.int64),
        rewards=np.array([row.reward for row in rows], np.float64),
        advantages=table.get("advantages"),
        entropy=table.get("entropy"),
    )


def _column(rows: Sequence[npt.NDArray[Any]], width: int) -> npt.NDArray[Any]:
    """Return one column of all rows, ``(B, T)``, padded with zeros."""
    table = np.zeros((len(rows), width), rows[0].dtype)
    for filled, values in zip(table, rows, strict=True):
        filled[: len(values)] = values
    return table
