"""LogRatioSketch: a fixed-size, mergeable summary of per-token log-ratios, one row of buckets per slice and sign."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from foreshock.batch import POST_TOOL, SLICES, TEXT_ONLY
from foreshock.errors import InputError, LayoutError
from foreshock.sketch.buckets import N_CELLS, REPRESENTATIVES, UPPER, WIDTHS
from foreshock.sketch.filling import fill
from foreshock.sketch.moments import Buckets, non_empty
from foreshock.stats.diagnostic import Diagnostic
from foreshock.stats.ecdf import Ecdf, ecdf, tail_distance
from foreshock.stats.tail import hill_index, pareto_k

MAX_SLICES = 64
MAX_PARETO_K = 0.7  # Vehtari et al. 2024: above it, averages of importance ratios cannot be relied on
MIN_TAIL = 10  # tokens; a tail index from fewer says nothing

N_SEQUENCE = 3  # columns of `sequences`

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
    """Counts of one pair's log-ratios by size, and their means in each bucket, per slice.

    The promises: quantiles of |r| within 0.78 % relative error for |r| in 1e-6 … 1e2 nats, at any size and for every
    slice; every token-level statistic the same, to the bit, however tokens were sharded and in whatever order sketches
    were merged, because all that is kept are integers and largest values; constant memory. NaN, ±inf and masked tokens
    are counted apart and enter no statistic.

    Sums over tokens are derived when read. The mean of r is exact up to float64 rounding. E[w²], χ², k3 and ESS/n
    are within 1e-4 (relative) for |r| up to 1 nat and within 1e-3 up to 10 nats on smooth distributions; `moments`
    states the bounds for any, and `codec` by how much a record rounds. |r| < 2^-20 counts as 0 in all sums, |r| ≥ 128
    as 128 nats.

    Every statistic is about a pair, `r = log numerator − log denominator`, per response token, in nats.

    Attributes (S slices; arrays are plain sums over tokens, except the extremes):
        counts: int64 (S, 2, N_CELLS); sign 0 is r < 0, sign 1 is r ≥ 0; cells as in `buckets`.
        fractions: int64 (S, 2, N_CELLS): Σ of the fractions of `buckets`.
        sequences: float64 (S, 3): sequences, Σw and Σw² of the geometric-mean ratio of each sequence.
        tallies: int64 (S, 3): NaN, +inf, −inf.
        extremes: float64 (S, 2): the largest |r| among r < 0 and among r ≥ 0, exact (0 when there is none).
        masked: tokens that the mask left out, over all slices.
        outside: unmasked tokens whose slice id is none of the slices (only a device sketch lets them pass).
    """

    __slots__ = ("counts", "extremes", "fractions", "masked", "outside", "sequences", "slices", "tallies")

    def __init__(self, slices: Sequence[str] = SLICES) -> None:
        self.slices = check_slices(slices)
        size = len(self.slices)
        self.counts: IntArray = np.zeros((size, 2, N_CELLS), np.int64)
        self.fractions: IntArray = np.zeros((size, 2, N_CELLS), np.int64)
        self.sequences: FloatArray = np.zeros((size, N_SEQUENCE))
        self.tallies: IntArray = np.zeros((size, 3), np.int64)
        self.extremes: FloatArray = np.zeros((size, 2))
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
        """Count the tokens of one batch; several times as fast once `foreshock.sketch.load_compiled` has been called.

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
        fill(self, log_ratio, slice_ids, mask, sequence_ids)

    def merge(self, other: LogRatioSketch) -> None:
        """Add another sketch of the same layout to this one. LayoutError when the layouts differ."""
        if other.slices != self.slices:
            raise LayoutError(
                f"merge: got a sketch with slices {other.slices}, expected {self.slices}. "
                "Only sketches with the same slices, in the same order, can be merged."
            )
        self.counts += other.counts
        self.fractions += other.fractions
        self.sequences += other.sequences
        self.tallies += other.tallies
        np.maximum(self.extremes, other.extremes, out=self.extremes)
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

    @property
    def has_tokens(self) -> bool:
        """Whether any token of any slice was counted, finite or not."""
        return bool(self.counts.any() or self.tallies.any())

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
        largest = float(self.extremes[i].max())
        return self._at_rank(_share("q", q), slice, self.counts[i].sum(0), REPRESENTATIVES, 0.0, largest)

    def signed_quantile(self, q: float, slice: str) -> Diagnostic:
        """Quantile of r itself, in nats, with the same bound on its error; the largest |r| of each sign is exact."""
        i = self._index(slice)
        counts = np.concatenate((self.counts[i, 0, ::-1], self.counts[i, 1]))
        below, above = self.extremes[i].tolist()
        return self._at_rank(_share("q", q), slice, counts, _SIGNED, -below, above)

    def _at_rank(
        self, q: float, slice: str, counts: IntArray, values: FloatArray, smallest: float, largest: float
    ) -> Diagnostic:
        """The value at rank ⌈q n⌉; `smallest` and `largest` bound all values, and one that is not 0 is reached."""
        cumulative = np.cumsum(counts)
        n = int(cumulative[-1])
        if n == 0:
            return Diagnostic.unknown(0, self._empty(slice))
        rank = max(math.ceil(q * n), 1)
        if rank == n and largest > 0:
            return Diagnostic(largest, n)
        if rank == 1 and smallest < 0:
            return Diagnostic(smallest, n)
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

    def excess(self, threshold: float, slice: str) -> Diagnostic:
        """E[max(|r| − threshold, 0)] in nats: how much of |r| stands beyond a value (nats, ≥ 0), per token.

        In the one bucket that holds the threshold, the bucket's mean is compared with it.
        """
        if not threshold >= 0:
            raise InputError(f"threshold: got {threshold!r}, expected nats of at least 0. Pass a limit for |r|.")
        buckets = self._buckets(slice)
        return self._mean_of(float(np.dot(buckets.n, np.maximum(np.abs(buckets.r) - threshold, 0))), slice)

    def ecdf(self, slice: str) -> Ecdf:
        """Empirical distribution of |r| in nats, at the values that stand for the non-empty buckets."""
        found = ecdf(REPRESENTATIVES, self.counts[self._index(slice)].sum(0))
        return found if found.ok else replace(found, reason=self._empty(slice))

    def tail_distance(self, other: LogRatioSketch, share: float, slice: str) -> Diagnostic:
        """Wasserstein-1 distance in nats between the largest `share` of |r| here and in another sketch, one slice.

        How far the tail has moved, on average over its tokens. Its n is the smaller number of tokens in a tail.
        """
        before, after = (sketch.counts[sketch._index(slice)].sum(0) for sketch in (other, self))
        n = int(_share("share", share) * min(before.sum(), after.sum()))
        if n < MIN_TAIL:
            return Diagnostic.unknown(n, f"only {n} tokens in the top {share:.0%} of slice {slice}")
        return Diagnostic(tail_distance(REPRESENTATIVES, before, after, share), n)

    def _buckets(self, slice: str) -> Buckets:
        i = self._index(slice)
        return non_empty(self.counts[i], self.fractions[i])

    def _mean_of(self, total: float, slice: str) -> Diagnostic:
        n = self.n(slice)
        return Diagnostic(total / n, n) if n else Diagnostic.unknown(0, self._empty(slice))

    def mean(self, slice: str) -> Diagnostic:
        """Mean of r, in nats."""
        buckets = self._buckets(slice)
        return self._mean_of(float(np.dot(buckets.n, buckets.r)), slice)

    def kl_k1(self, slice: str, sampled_from: str = "numerator") -> Diagnostic:
        """KL(sampling policy ‖ other policy), estimator k1, in nats per token.

        With tokens sampled from the numerator this is KL(numerator ‖ denominator) = E[r]; with tokens sampled from
        the denominator it is KL(denominator ‖ numerator) = E[−r]. Schulman 2020, "Approximating KL divergence".
        """
        sign = 1.0 if _from_numerator(sampled_from) else -1.0
        buckets = self._buckets(slice)
        return self._mean_of(sign * float(np.dot(buckets.n, buckets.r)), slice)

    def kl_k3(self, slice: str, sampled_from: str = "numerator") -> Diagnostic:
        """KL(sampling policy ‖ other policy), estimator k3, in nats per token; never negative.

        With tokens sampled from the numerator this is KL(numerator ‖ denominator) = E[e^−r − 1 + r]; with tokens
        sampled from the denominator it is KL(denominator ‖ numerator) = E[e^r − 1 − r]. Schulman 2020.
        """
        buckets = self._buckets(slice)
        r = buckets.r if _from_numerator(sampled_from) else -buckets.r
        return self._mean_of(max(buckets.total(np.expm1(-r) + r, np.exp(-r)), 0.0), slice)

    def second_moment(self, slice: str) -> Diagnostic:
        """E[w²] of the importance ratio w = e^r, over the tokens of the slice."""
        return self._mean_of(self._second_moment_sum(slice), slice)

    def _second_moment_sum(self, slice: str) -> float:
        buckets = self._buckets(slice)
        squared = np.exp(2 * buckets.r)
        return buckets.total(squared, 4 * squared)

    def second_moment_share(self, slice: str) -> Diagnostic:
        """Share of Σw² over all response tokens that stands in this slice; n is the finite tokens among them."""
        part = self._second_moment_sum(slice)
        everything = self._partition()
        n = sum(self.n(name) for name in everything)
        if n == 0:
            return Diagnostic.unknown(0, f"no finite log-ratio in any of the slices {everything}")
        return Diagnostic(part / sum(self._second_moment_sum(name) for name in everything), n)

    def _partition(self) -> tuple[str, ...]:
        """Slices that hold every response token once: the built-in two, beside which a user's slices count it again."""
        return SLICES if set(SLICES) <= set(self.slices) else self.slices

    def chi2(self, slice: str) -> Diagnostic:
        """χ²(numerator ‖ denominator) = E[(w − 1)²] with w = e^r and tokens sampled from the denominator."""
        buckets = self._buckets(slice)
        ratio = np.exp(buckets.r)
        return self._mean_of(buckets.total(np.expm1(buckets.r) ** 2, 4 * ratio**2 - 2 * ratio), slice)

    def ess_share(self, slice: str, cap: float = math.inf) -> Diagnostic:
        """Kish's effective sample size over n, of w = e^min(r, cap); cap in nats, at least 0, for example log 2 or 3.

        ESS = (Σw)² / Σw². In the one bucket that holds the cap, the bucket's mean is capped; 3 and inf are edges.

        At cap inf the value carries a reason, and so is not `ok`, when `pareto_k` of the ratios is above 0.7: then
        the value is set by the few largest tokens and falls with n.
        """
        if not cap >= 0:
            raise InputError(f"cap: got {cap!r}, expected nats of at least 0. Pass log 2, 3 or inf, for example.")
        buckets = self._buckets(slice)
        n = int(buckets.n.sum())
        if n == 0:
            return Diagnostic.unknown(0, self._empty(slice))
        ratio = np.exp(np.minimum(buckets.r, cap))
        curved = buckets.r < cap  # from the cap on, the ratio is constant
        total, total2 = buckets.total(ratio, ratio * curved), buckets.total(ratio**2, 4 * ratio**2 * curved)
        value = min(total * total / (n * total2), 1.0)
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
        return hill_index(*_split(REPRESENTATIVES, UPPER, WIDTHS, counts, top), top)

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
        r, counts = _split(_SIGNED, _SIGNED_UPPER, _SIGNED_WIDTHS, counts, top)
        return pareto_k(np.exp(r), counts, top)

    def alpha(self) -> Diagnostic:
        """α: the share of `post_tool` among the tokens (finite or not) of the two built-in slices."""
        if POST_TOOL not in self.slices or TEXT_ONLY not in self.slices:
            return Diagnostic.unknown(0, f"{TEXT_ONLY} and {POST_TOOL} are not both among the slices {self.slices}")
        tokens = self.counts.sum((1, 2)) + self.tallies.sum(1)
        post_tool, text_only = (int(tokens[self._index(name)]) for name in (POST_TOOL, TEXT_ONLY))
        n = post_tool + text_only
        if n == 0:
            return Diagnostic.unknown(0, "no response token")
        return Diagnostic(post_tool / n, n)


_ARRAYS = ("counts", "fractions", "sequences", "tallies", "extremes")
_SIGNED: FloatArray = np.concatenate((-REPRESENTATIVES[::-1], REPRESENTATIVES))
_SIGNED_UPPER: FloatArray = np.concatenate(((WIDTHS - UPPER)[::-1], UPPER))
_SIGNED_WIDTHS: FloatArray = np.concatenate((WIDTHS[::-1], WIDTHS))


def _split(
    values: FloatArray, upper: FloatArray, widths: FloatArray, counts: IntArray, top: int
) -> tuple[FloatArray, IntArray]:
    """Values and counts with the cell in which the `top` largest tokens begin split in two; all (m,), ascending.

    The tokens of that cell are taken to lie evenly over it: what stands outside the tail is put where the largest of
    them is, what stands inside at its middle. Without that a tail would seem lighter than it is.
    """
    above = np.cumsum(counts[::-1])[::-1]  # tokens in each cell or beyond it
    if not 0 < top < above[0]:
        return values, counts
    cell = int(np.flatnonzero(above > top)[-1])
    inside = top - int(above[cell] - counts[cell])
    start = upper[cell] - widths[cell] * (inside + 0.5) / counts[cell]
    values, counts = np.insert(values, cell, start), np.insert(counts, cell, counts[cell] - inside)
    values[cell + 1], counts[cell + 1] = (start + upper[cell]) / 2, inside
    return values, counts


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
