"""LogRatioSketch: a fixed-size, mergeable summary of per-token log-ratios, one row of buckets per slice and sign."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from foreshock.batch import POST_TOOL, SLICES
from foreshock.errors import InputError, LayoutError
from foreshock.sketch.buckets import INF_CELL, N_CELLS, NAN_CELL, REPRESENTATIVES, ROW_WIDTH, cell_of
from foreshock.sketch.moments import (
    CAPPED,
    CAPS,
    CLIP,
    INVERSE_U,
    N_MOMENTS,
    N_SEQUENCE,
    U2,
    R,
    U,
    sequence_sums,
    token_sums,
)
from foreshock.stats.diagnostic import Diagnostic
from foreshock.stats.ecdf import ecdf
from foreshock.stats.ess import ess_share_from_excess
from foreshock.stats.tail import hill_index, pareto_k

MAX_SLICES = 64
MAX_PARETO_K = 0.7  # Vehtari et al. 2024: above it, averages of importance ratios cannot be relied on
MIN_TAIL = 10  # tokens; a tail index from fewer says nothing
CHUNK = 1 << 17  # tokens; bounds the temporaries

NAN, POS_INF, NEG_INF = 0, 1, 2  # columns of `tallies`

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


def check_slices(slices: Sequence[str]) -> tuple[str, ...]:
    """The slice names as a tuple; InputError unless they are 1 … 64 distinct names."""
    names = tuple(slices)
    distinct = not isinstance(slices, str) and len(set(names)) == len(names)
    if not distinct or not 1 <= len(names) <= MAX_SLICES or not all(isinstance(name, str) for name in names):
        raise InputError(
            f"slices: got {slices!r}, expected 1 to {MAX_SLICES} distinct names. Pass a tuple of so many names."
        )
    return names


class LogRatioSketch:
    """Counts and sums of one pair's log-ratios, per slice.

    The promises: quantiles of |r| within 0.78 % relative error for |r| in 1e-6 … 1e2 nats, at any size and for every
    slice; counts that do not depend, to the bit, on how tokens were sharded or in which order sketches were merged;
    constant memory. NaN, ±inf and masked tokens are counted apart and enter no statistic.

    Every statistic is about a pair, `r = log numerator − log denominator`, per response token, in nats.

    Attributes (S slices; arrays are plain sums over tokens, except the extremes):
        counts: int64 (S, 2, N_CELLS); sign 0 is r < 0, sign 1 is r ≥ 0; cells as in `buckets`.
        moments: float64 (S, N_MOMENTS), columns as in `moments`.
        sequences: float64 (S, 3): sequences, Σw and Σw² of the geometric-mean ratio of each sequence.
        tallies: int64 (S, 3): NaN, +inf, −inf.
        extremes: float64 (S, 2): smallest and largest r, exact (+inf, −inf when empty).
        masked: tokens that the mask left out, over all slices.
        outside: unmasked tokens whose slice id is none of the slices (only a device sketch lets them pass).
    """

    __slots__ = ("counts", "extremes", "masked", "moments", "outside", "sequences", "slices", "tallies")

    def __init__(self, slices: Sequence[str] = SLICES) -> None:
        self.slices = check_slices(slices)
        size = len(self.slices)
        self.counts: IntArray = np.zeros((size, 2, N_CELLS), np.int64)
        self.moments: FloatArray = np.zeros((size, N_MOMENTS))
        self.sequences: FloatArray = np.zeros((size, N_SEQUENCE))
        self.tallies: IntArray = np.zeros((size, 3), np.int64)
        self.extremes: FloatArray = np.tile([math.inf, -math.inf], (size, 1))
        self.masked = 0
        self.outside = 0

    def __repr__(self) -> str:
        tokens = ", ".join(f"{name}: {self.n(name)}" for name in self.slices)
        return f"LogRatioSketch({tokens})"

    def __eq__(self, other: object) -> bool:
        """Same slices, counts and sums, to the bit."""
        if not isinstance(other, LogRatioSketch):
            return NotImplemented
        return (
            self.slices == other.slices
            and (self.masked, self.outside) == (other.masked, other.outside)
            and all(np.array_equal(getattr(self, name), getattr(other, name)) for name in _ARRAYS)
        )

    __hash__ = None  # type: ignore[assignment]

    # Filling

    def update(self, log_ratio: Any, slice_ids: Any, mask: Any = None, sequence_ids: Any = None) -> None:
        """Count the tokens of one batch.

        Args:
            log_ratio: (N,) or (B, T), nats; NumPy, a list, or a torch tensor (copied to the host). Taken as float32.
            slice_ids: same shape, integers that index `slices`; ignored where masked.
            mask: same shape; True or non-zero marks a response token. Without it all tokens count.
            sequence_ids: same shape, integers saying which sequence a token belongs to. Rows of a (B, T) batch
                are its sequences. Without it a flat batch adds nothing to `sequence_ess_share`. A sequence must lie
                within one batch.

        Raises:
            InputError: a slice id outside the layout, or ids that are not integers.
            LayoutError: shapes that differ.
        """
        with np.errstate(over="ignore", invalid="ignore"):  # beyond float32 means ±inf, which is counted as such
            values = _host(log_ratio, "log_ratio").astype(np.float32, copy=False)
        if values.ndim not in (1, 2):
            raise LayoutError(f"log_ratio: got shape {values.shape}, expected (N,) or (B, T). Flatten it first.")
        ids = _same_shape("slice_ids", slice_ids, values.shape)
        keep = np.ones(values.shape, np.bool_) if mask is None else _same_shape("mask", mask, values.shape) != 0
        self._check_ids(ids, keep)
        if sequence_ids is not None:
            rows = _same_shape("sequence_ids", sequence_ids, values.shape).ravel().astype(np.int64)
            order = np.argsort(rows, kind="stable")
            starts = np.flatnonzero(np.diff(rows[order], prepend=rows[order][:1] - 1))
            self._count(values.ravel()[order], ids.ravel()[order], keep.ravel()[order], starts)
            return
        columns = values.shape[1] if values.ndim == 2 else 1  # a chunk holds whole sequences
        step = max(CHUNK // max(columns, 1), 1)
        for start in range(0, values.shape[0], step):
            part = slice(start, start + step)
            row_starts = np.arange(0, values[part].size, columns) if values.ndim == 2 and columns else None
            self._count(values[part].ravel(), ids[part].ravel(), keep[part].ravel(), row_starts)

    def _check_ids(self, ids: npt.NDArray[Any], keep: npt.NDArray[np.bool_]) -> None:
        """InputError unless every unmasked id is an integer that indexes the slices."""
        if ids.dtype.kind in "iub":
            if not ids.size or (ids.min() >= 0 and ids.max() < len(self.slices)):
                return
            ids = ids[keep]
            if not ids.size or (ids.min() >= 0 and ids.max() < len(self.slices)):
                return
        elif not ids.size:
            return
        raise InputError(
            f"slice_ids: got {ids.dtype} from {ids.min()} to {ids.max()}, expected integers from 0 to "
            f"{len(self.slices) - 1}, which index the slices {self.slices}. Mask other tokens, or add a slice."
        )

    def _count(
        self,
        values: npt.NDArray[np.float32],
        ids: npt.NDArray[Any],
        keep: npt.NDArray[np.bool_],
        row_starts: npt.NDArray[np.intp] | None,
    ) -> None:
        """Count one chunk, (N,). `row_starts` says at which token each sequence begins."""
        self.masked += keep.size - int(np.count_nonzero(keep))
        for i in range(len(self.slices)):
            tokens = np.flatnonzero(keep & (ids == i))
            if tokens.size:
                self._count_slice(i, values[tokens], tokens, row_starts)

    def _count_slice(
        self,
        i: int,
        values: npt.NDArray[np.float32],
        tokens: npt.NDArray[np.intp],
        row_starts: npt.NDArray[np.intp] | None,
    ) -> None:
        """Count the tokens of slice i; `tokens` are their places in the chunk."""
        sign, cell = cell_of(values)
        counts = np.bincount(sign * ROW_WIDTH + cell, minlength=2 * ROW_WIDTH).reshape(2, ROW_WIDTH)
        self.counts[i] += counts[:, :N_CELLS]
        if counts[:, N_CELLS:].any():
            self.tallies[i, NAN] += counts[:, NAN_CELL].sum()
            self.tallies[i, POS_INF] += counts[1, INF_CELL]
            self.tallies[i, NEG_INF] += counts[0, INF_CELL]
            finite = np.flatnonzero(cell < N_CELLS)
            values, tokens = values[finite], tokens[finite]
            if not values.size:
                return
        self.extremes[i, 0] = min(self.extremes[i, 0], values.min())
        self.extremes[i, 1] = max(self.extremes[i, 1], values.max())
        r = np.clip(values.astype(np.float64), -CLIP, CLIP)
        self.moments[i] += token_sums(r)
        if row_starts is not None:
            self.sequences[i] += sequence_sums(r, np.searchsorted(tokens, row_starts))

    def merge(self, other: LogRatioSketch) -> None:
        """Add another sketch of the same layout to this one. LayoutError when the layouts differ."""
        if other.slices != self.slices:
            raise LayoutError(
                f"merge: got a sketch with slices {other.slices}, expected {self.slices}. "
                "Only sketches with the same slices, in the same order, can be merged."
            )
        self.counts += other.counts
        self.moments += other.moments
        self.sequences += other.sequences
        self.tallies += other.tallies
        self.extremes[:, 0] = np.minimum(self.extremes[:, 0], other.extremes[:, 0])
        self.extremes[:, 1] = np.maximum(self.extremes[:, 1], other.extremes[:, 1])
        self.masked += other.masked
        self.outside += other.outside

    @classmethod
    def merged(cls, sketches: Iterable[LogRatioSketch]) -> LogRatioSketch:
        """A new sketch: the sum of at least one sketch. The inputs stay as they are."""
        items = list(sketches)
        if not items:
            raise InputError("merged: got no sketch, expected at least one. Check that the blocks hold this pair.")
        total = cls(items[0].slices)
        for item in items:
            total.merge(item)
        return total

    # Reading

    def _index(self, slice: str) -> int:
        try:
            return self.slices.index(slice)
        except ValueError:
            raise InputError(f"slice: got {slice!r}, expected one of {self.slices}. Name one of these.") from None

    def n(self, slice: str) -> int:
        """Finite tokens counted in the slice."""
        return int(self.counts[self._index(slice)].sum())

    def tally(self, slice: str) -> Mapping[str, int]:
        """Tokens of the slice that enter no statistic: `nan`, `pos_inf`, `neg_inf`."""
        nan, pos_inf, neg_inf = self.tallies[self._index(slice)].tolist()
        return {"nan": nan, "pos_inf": pos_inf, "neg_inf": neg_inf}

    def _empty(self, slice: str) -> str:
        """Why a slice without finite tokens cannot be judged."""
        tally = self.tally(slice)
        if any(tally.values()):
            return f"no finite log-ratio in slice {slice} ({', '.join(f'{v} {k}' for k, v in tally.items() if v)})"
        return f"no token in slice {slice}"

    def quantile(self, q: float, slice: str) -> Diagnostic:
        """Quantile of |r| in nats, nearest rank: the smallest value with at least a share q of tokens at or below it.

        Within 0.78 % (relative) for values in 1e-6 … 1e2. Values under 2^-20 read 0; over 2^7 they read 128, except
        the largest, which is exact.
        """
        i = self._index(slice)
        counts = self.counts[i].sum(0)
        largest = float(np.abs(self.extremes[i]).max())
        return self._at_rank(_share("q", q), slice, counts, REPRESENTATIVES, 0.0, largest)

    def signed_quantile(self, q: float, slice: str) -> Diagnostic:
        """Quantile of r itself, in nats, with the same bound on its error."""
        i = self._index(slice)
        counts = np.concatenate((self.counts[i, 0, ::-1], self.counts[i, 1]))
        smallest, largest = self.extremes[i].tolist()
        return self._at_rank(_share("q", q), slice, counts, _SIGNED, smallest, largest)

    def _at_rank(
        self, q: float, slice: str, counts: IntArray, values: FloatArray, smallest: float, largest: float
    ) -> Diagnostic:
        cumulative = np.cumsum(counts)
        n = int(cumulative[-1])
        if n == 0:
            return Diagnostic.unknown(0, self._empty(slice))
        rank = max(math.ceil(q * n), 1)
        if rank == n:
            return Diagnostic(largest, n)
        value = float(values[np.searchsorted(cumulative, rank)])
        return Diagnostic(min(max(value, smallest), largest), n)

    def tail_mass(self, threshold: float, slice: str) -> Diagnostic:
        """Share of tokens with |r| > threshold (nats, ≥ 0); the threshold acts as if moved by at most 0.78 %."""
        if not threshold >= 0:
            raise InputError(f"threshold: got {threshold!r}, expected nats of at least 0. Pass a limit for |r|.")
        counts = self.counts[self._index(slice)].sum(0)
        n = int(counts.sum())
        if n == 0:
            return Diagnostic.unknown(0, self._empty(slice))
        return Diagnostic(float(counts[threshold < REPRESENTATIVES].sum() / n), n)

    def ecdf(self, slice: str) -> tuple[FloatArray, FloatArray]:
        """|r| in nats at the non-empty buckets, and the share of tokens at or below each; empty arrays if no token."""
        return ecdf(REPRESENTATIVES, self.counts[self._index(slice)].sum(0))

    def kl_k2(self, slice: str) -> Diagnostic:
        """KL between the two policies, either direction, estimator k2 = E[r²] / 2, in nats per token.

        Read from the buckets, hence within 1.6 %; exact sums of r² are not kept. Schulman 2020.
        """
        counts = self.counts[self._index(slice)].sum(0)
        return self._mean_of(float(np.dot(counts, REPRESENTATIVES**2)) / 2, slice)

    def _mean_of(self, total: float, slice: str) -> Diagnostic:
        n = self.n(slice)
        return Diagnostic(total / n, n) if n else Diagnostic.unknown(0, self._empty(slice))

    def _sum(self, column: int, slice: str) -> float:
        return float(self.moments[self._index(slice), column])

    def mean(self, slice: str) -> Diagnostic:
        """Mean of r, in nats (r clipped to ±300, as in all sums)."""
        return self._mean_of(self._sum(R, slice), slice)

    def kl_k1(self, slice: str, sampled_from: str = "numerator") -> Diagnostic:
        """KL(sampling policy ‖ other policy), estimator k1, in nats per token.

        With tokens sampled from the numerator this is KL(numerator ‖ denominator) = E[r]; with tokens sampled from
        the denominator it is KL(denominator ‖ numerator) = E[−r]. Schulman 2020, "Approximating KL divergence".
        """
        sign = 1.0 if _from_numerator(sampled_from) else -1.0
        return self._mean_of(sign * self._sum(R, slice), slice)

    def kl_k3(self, slice: str, sampled_from: str = "numerator") -> Diagnostic:
        """KL(sampling policy ‖ other policy), estimator k3, in nats per token; never negative.

        With tokens sampled from the numerator this is KL(numerator ‖ denominator) = E[e^−r − 1 + r]; with tokens
        sampled from the denominator it is KL(denominator ‖ numerator) = E[e^r − 1 − r]. Schulman 2020.
        """
        if _from_numerator(sampled_from):
            total = self._sum(INVERSE_U, slice) + self._sum(R, slice)
        else:
            total = self._sum(U, slice) - self._sum(R, slice)
        return self._mean_of(max(total, 0.0), slice)

    def second_moment(self, slice: str) -> Diagnostic:
        """E[w²] of the importance ratio w = e^r, over the tokens of the slice."""
        return self._mean_of(self._second_moment_sum(self._index(slice)), slice)

    def _second_moment_sum(self, i: int) -> float:
        return float(self.counts[i].sum() + 2 * self.moments[i, U] + self.moments[i, U2])

    def second_moment_share(self, slice: str) -> Diagnostic:
        """Share of Σw² over all slices that stands in this slice."""
        i = self._index(slice)
        n = int(self.counts.sum())
        if n == 0:
            return Diagnostic.unknown(0, "no finite log-ratio in any slice")
        total = sum(self._second_moment_sum(j) for j in range(len(self.slices)))
        return Diagnostic(self._second_moment_sum(i) / total, n)

    def chi2(self, slice: str) -> Diagnostic:
        """χ²(numerator ‖ denominator) = E[(w − 1)²] with w = e^r and tokens sampled from the denominator."""
        return self._mean_of(self._sum(U2, slice), slice)

    def ess_share(self, slice: str, cap: float = math.inf) -> Diagnostic:
        """Kish's effective sample size over n, of w = e^min(r, cap); cap (nats) is log 2, 3 or inf.

        At cap inf the value carries a reason, and so is not `ok`, when `pareto_k` of the ratios is above 0.7: then
        the value is set by the few largest tokens and falls with n.
        """
        i = self._index(slice)
        n = self.n(slice)
        if n == 0:
            return Diagnostic.unknown(0, self._empty(slice))
        if math.isinf(cap) and cap > 0:
            total, total2 = self.moments[i, U], self.moments[i, U2]
        else:
            column = CAPPED + 2 * _cap_number(cap)
            total, total2 = self.moments[i, column], self.moments[i, column + 1]
        value = ess_share_from_excess(n, float(total), float(total2))
        if math.isnan(value):
            return Diagnostic.unknown(n, "every importance ratio is close to zero")
        if math.isinf(cap) and (shape := self.pareto_k(slice).value) > MAX_PARETO_K:
            return Diagnostic(value, n, f"unreliable: Pareto k of the importance ratios is {shape:.2f}, above 0.7")
        return Diagnostic(value, n)

    def sequence_ess_share(self, slice: str) -> Diagnostic:
        """Kish's effective sample size over the number of sequences, of the geometric-mean ratio of each sequence.

        The ratio is w = exp(mean r over the sequence's response tokens of this slice); n counts sequences.
        """
        rows, total, total2 = self.sequences[self._index(slice)].tolist()
        if not rows:
            return Diagnostic.unknown(0, f"no sequence with a finite log-ratio in slice {slice}")
        return Diagnostic(total * total / (rows * total2), int(rows))

    def hill(self, slice: str, share: float = 0.02) -> Diagnostic:
        """Hill's estimate of the tail index ξ = 1/α of |r|, from the largest `share` of tokens; heavier tail, larger ξ.

        P(|r| > x) ~ x^(−1/ξ). n is the number of tokens in the tail. Read from bucket counts.
        """
        counts = self.counts[self._index(slice)].sum(0)
        n = int(counts.sum())
        top = int(_share("share", share) * n)
        if n == 0:
            return Diagnostic.unknown(0, self._empty(slice))
        if top < MIN_TAIL:
            return Diagnostic.unknown(top, f"only {top} tokens in the top {share:.0%} of slice {slice}")
        return hill_index(REPRESENTATIVES, counts, top)

    def pareto_k(self, slice: str) -> Diagnostic:
        """Pareto k̂ of the importance ratios w = e^r, from the largest min(n/5, 3√n) tokens.

        Above 0.7 averages of w, and so the effective sample size, cannot be relied on (Vehtari et al. 2024, whose
        tail size this is). n is the number of tokens in the tail.
        """
        i = self._index(slice)
        n = int(self.counts[i].sum())
        if n == 0:
            return Diagnostic.unknown(0, self._empty(slice))
        top = math.ceil(min(0.2 * n, 3 * math.sqrt(n)))
        if top < MIN_TAIL:
            return Diagnostic.unknown(top, f"only {top} tokens in the tail of slice {slice}")
        counts = np.concatenate((self.counts[i, 0, ::-1], self.counts[i, 1]))
        return pareto_k(np.exp(_SIGNED), counts, top)

    def alpha(self) -> Diagnostic:
        """α: the share of response tokens (finite or not) that stand in `post_tool`."""
        if POST_TOOL not in self.slices:
            return Diagnostic.unknown(0, f"no slice named {POST_TOOL} among {self.slices}")
        tokens = self.counts.sum((1, 2)) + self.tallies.sum(1)
        n = int(tokens.sum())
        if n == 0:
            return Diagnostic.unknown(0, "no response token")
        return Diagnostic(float(tokens[self._index(POST_TOOL)] / n), n)


_ARRAYS = ("counts", "moments", "sequences", "tallies", "extremes")
_SIGNED: FloatArray = np.concatenate((-REPRESENTATIVES[::-1], REPRESENTATIVES))


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


def _share(name: str, value: float) -> float:
    if not 0 <= value <= 1:
        raise InputError(f"{name}: got {value!r}, expected a share from 0 to 1. Write 0.99 for the 99th percentile.")
    return float(value)


def _from_numerator(sampled_from: str) -> bool:
    if sampled_from not in ("numerator", "denominator"):
        raise InputError(
            f"sampled_from: got {sampled_from!r}, expected 'numerator' or 'denominator'. Name the policy of the pair "
            "that sampled the tokens."
        )
    return sampled_from == "numerator"


def _cap_number(cap: float) -> int:
    for number, known in enumerate(CAPS):
        if math.isclose(cap, known, rel_tol=1e-9):
            return number
    raise InputError(f"cap: got {cap!r}, expected log 2, 3 or inf (nats). The sketch keeps sums at these caps only.")
