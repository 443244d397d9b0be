"""Filling a LogRatioSketch from arrays on the host, with NumPy or, once it is loaded, with compiled code."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from foreshock.errors import InputError, LayoutError
from foreshock.sketch.buckets import (
    COUNT_BITS,
    COUNT_UNIT,
    INF_CELL,
    LARGEST,
    MAX_PENDING,
    N_CELLS,
    NAN_CELL,
    ROW_WIDTH,
    locate,
)

if TYPE_CHECKING:
    from foreshock.sketch.log_ratio import LogRatioSketch

NAN, POS_INF, NEG_INF = 0, 1, 2  # columns of `tallies`
CHUNK = 1 << 18  # tokens; bounds the temporaries

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

_compiled: Callable[..., None] | None = None


def load_compiled() -> str:
    """Count with compiled code in this process from now on: about four times as fast, with the same counts.

    It needs numba (`pip install 'foreshock[fast]'`). Loading takes up to a second, and compiling some four seconds once
    on a machine: call it before the work begins, never inside a training step.

    Returns:
        Why updates stay with NumPy, or nothing.
    """
    global _compiled
    try:
        from foreshock.sketch.compiled import count
    except Exception as error:  # not installed, a NumPy that numba does not know, a cache that cannot be written
        return f"{type(error).__name__}: {error}"
    _compiled = count
    return ""


def fill(sketch: LogRatioSketch, log_ratio: Any, slice_ids: Any, mask: Any, sequence_ids: Any) -> None:
    """Count the tokens of one batch: `LogRatioSketch.update`, which describes the arguments and errors."""
    with np.errstate(over="ignore", invalid="ignore"):  # beyond float32 means ±inf, which is counted as such
        values = _host(log_ratio, "log_ratio").astype(np.float32, copy=False)
    if values.ndim not in (1, 2):
        raise LayoutError(f"log_ratio: got shape {values.shape}, expected (N,) or (B, T). Flatten it first.")
    ids = _same_shape("slice_ids", slice_ids, values.shape)
    keep = np.ones(values.shape, np.bool_) if mask is None else _same_shape("mask", mask, values.shape)
    if keep.dtype != np.bool_:
        keep = keep != 0
    _check_ids(ids, keep, sketch.slices)
    if sequence_ids is not None:
        rows = _same_shape("sequence_ids", sequence_ids, values.shape).ravel().astype(np.int64)
        order = np.argsort(rows, kind="stable")
        starts = np.flatnonzero(np.diff(rows[order], prepend=rows[order][:1] - 1))
        _count(sketch, values.ravel()[order], ids.ravel()[order], keep.ravel()[order], starts)
        return
    columns = values.shape[1] if values.ndim == 2 else 1  # a chunk holds whole sequences
    step = max(CHUNK // max(columns, 1), 1)
    for start in range(0, values.shape[0], step):
        part = slice(start, start + step)
        row_starts = np.arange(0, values[part].size, columns) if values.ndim == 2 and columns else None
        _count(sketch, values[part].ravel(), ids[part].ravel(), keep[part].ravel(), row_starts)


def _check_ids(ids: npt.NDArray[Any], keep: npt.NDArray[np.bool_], slices: tuple[str, ...]) -> None:
    """InputError unless every unmasked id is an integer that indexes the slices."""
    if ids.dtype.kind in "iub":
        if not ids.size or (ids.min() >= 0 and ids.max() < len(slices)):
            return
        ids = ids[keep]
        if not ids.size or (ids.min() >= 0 and ids.max() < len(slices)):
            return
    elif not ids.size:
        return
    raise InputError(
        f"slice_ids: got {ids.dtype} from {ids.min()} to {ids.max()}, expected integers from 0 to "
        f"{len(slices) - 1}, which index the slices {slices}. Mask other tokens, or add a slice."
    )


def _count(
    sketch: LogRatioSketch,
    values: npt.NDArray[np.float32],
    ids: npt.NDArray[Any],
    keep: npt.NDArray[np.bool_],
    row_starts: npt.NDArray[np.intp] | None,
) -> None:
    """Count one chunk, (N,). `row_starts` says at which token each sequence begins."""
    if _compiled is not None:
        _compiled(sketch, values, ids, keep, row_starts)
        return
    sketch.masked += keep.size - int(np.count_nonzero(keep))
    for i in range(len(sketch.slices)):
        tokens = np.flatnonzero(keep & (ids == i))
        if tokens.size:
            _count_slice(sketch, i, values[tokens], tokens, row_starts)


def _count_slice(
    sketch: LogRatioSketch,
    i: int,
    values: npt.NDArray[np.float32],
    tokens: npt.NDArray[np.intp],
    row_starts: npt.NDArray[np.intp] | None,
) -> None:
    """Count the tokens of slice i; `tokens` are their places in the chunk."""
    sign, cell, fraction = locate(values)
    counts, fractions = _histogram(sign * np.int32(ROW_WIDTH) + cell, fraction)
    sketch.counts[i] += counts[:, :N_CELLS]
    sketch.fractions[i, :, 1:-1] += fractions[:, 1 : N_CELLS - 1]
    if counts[:, N_CELLS:].any():
        sketch.tallies[i, NAN] += counts[:, NAN_CELL].sum()
        sketch.tallies[i, POS_INF] += counts[1, INF_CELL]
        sketch.tallies[i, NEG_INF] += counts[0, INF_CELL]
        finite = np.flatnonzero(cell < N_CELLS)
        values, tokens = values[finite], tokens[finite]
        if not values.size:
            return
    sketch.extremes[i] = np.maximum(sketch.extremes[i], (-values.min(), values.max())) + 0.0  # no −0.0
    if row_starts is not None:
        r = np.clip(values, -LARGEST, LARGEST).astype(np.float64)
        sketch.sequences[i] += _sequence_sums(r, np.searchsorted(tokens, row_starts))


def _host(value: Any, name: str) -> npt.NDArray[Any]:
    """NumPy view or copy of an array, a list or a torch tensor."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        if value.is_floating_point():
            value = value.float()  # NumPy has no bfloat16
        value = value.numpy()
    array = np.asarray(value)
    if array.dtype.kind not in "fiub":
        raise InputError(f"{name}: got dtype {array.dtype}, expected numbers. Convert it first.")
    return array


def _same_shape(name: str, value: Any, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    array = _host(value, name)
    if array.shape != shape:
        raise LayoutError(f"{name}: got shape {array.shape}, expected {shape}, the shape of log_ratio. Align the two.")
    return array


def _histogram(place: npt.NDArray[np.int32], fraction: npt.NDArray[np.int32]) -> tuple[IntArray, IntArray]:
    """Counts and sums of fractions, both (2, ROW_WIDTH), from sign · ROW_WIDTH + cell and fraction of tokens, (N,)."""
    places, packed = place.astype(np.int64), fraction.astype(np.int64) | COUNT_UNIT
    counts, fractions = np.zeros((2, 2, ROW_WIDTH), np.int64)
    for start in range(0, places.size, MAX_PENDING):
        part = slice(start, start + MAX_PENDING)
        both = np.zeros(2 * ROW_WIDTH, np.int64)
        np.add.at(both, places[part], packed[part])
        counts += (both >> COUNT_BITS).reshape(counts.shape)
        fractions += (both & (COUNT_UNIT - 1)).reshape(counts.shape)
    return counts, fractions


def _sequence_sums(r: FloatArray, starts: npt.NDArray[np.intp]) -> FloatArray:
    """Sequences, Σw, Σw² of w = exp(mean r), (3,); `starts` (B,) says where in r (N,) each begins; one may be empty."""
    n = np.diff(starts, append=r.size)
    filled = n > 0
    w = np.exp(np.add.reduceat(r, starts[filled]) / n[filled])
    return np.array([w.size, w.sum(), np.dot(w, w)])
