"""DeviceSketch: the sketch of a training step, kept on the accelerator. The one torch file of the core.

`update` launches a fixed series of operations on preallocated buffers. It never waits for the device: no value is
read back, no shape depends on data. Masked tokens are sent to a row of their own instead of being selected.
Counts, fractions and extremes follow `buckets` to the bit. The packed sums of `buckets` are taken apart before a pair's
tokens since the last time exceed MAX_PENDING; how many came is known from shapes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from foreshock.errors import InputError, LayoutError
from foreshock.sketch.buckets import (
    COUNT_BITS,
    COUNT_UNIT,
    FIRST_INDEX,
    FRACTION_MASK,
    INF_CELL,
    INFINITY_BITS,
    LARGEST,
    MAX_PENDING,
    N_BUCKETS,
    N_CELLS,
    NAN_CELL,
    ROW_WIDTH,
    SHIFT,
)
from foreshock.sketch.filling import NAN, NEG_INF, POS_INF
from foreshock.sketch.log_ratio import N_SEQUENCE, LogRatioSketch, check_slices

CPU_CHUNK = 1 << 17  # tokens; larger batches are counted in parts that mostly stay in the processor's cache
DEVICE_CHUNK = 1 << 20  # tokens; bounds the scratch buffers, about 52 bytes a token with two slices, 84 with four
# Up to so many slices, each slice's extremes and sums per sequence are read from a masked copy of the batch: fast, and
# without atomic additions. The cost grows with the slices; with more of them tokens are scattered instead.
MAX_MASKED_SLICES = 4

# Tensor.copy_ asks for a CUDA build when it meets a CUDA tensor, even a fake one, as in this module's tests.
copy = torch.ops.aten.copy_.default


class DeviceSketch:
    """All pairs and slices of one block in one set of buffers on `device`.

    The promises: constant memory, no host synchronisation in `update`, and one vector of fixed length from `pack`
    that one SUM all-reduce merges, whatever the data: all token-level statistics to the bit (up to 2^36 tokens a
    block, where a sum of fractions reaches 2^53), the sums over sequences to rounding. The extremes sit in slots of
    their rank's own, so that the sum leaves them as they are.

    Tokens whose slice id is not an index of `slices` are counted as `outside`; NaN, ±inf and masked tokens apart too.
    A row of a batch is one sequence. A half-precision log-ratio is converted to float32; subtract in float32 before.
    The device must know float64.
    """

    def __init__(
        self,
        pairs: Sequence[str],
        slices: Sequence[str],
        device: torch.device | str,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        self.pairs = tuple(pairs)
        self.slices = check_slices(slices)
        if isinstance(pairs, str) or not self.pairs or len(set(self.pairs)) != len(self.pairs):
            raise InputError(f"pairs: got {pairs!r}, expected at least one name, each once. Pass a tuple of names.")
        if not 0 <= rank < world_size:
            raise InputError(f"rank: got {rank}, expected 0 to {world_size - 1}. Pass this worker's rank in its group.")
        self.rank, self.world_size = rank, world_size
        n_pairs, size = len(self.pairs), len(self.slices)
        # Rows: 0 is for masked tokens, 1 for ids below 0, then the slices, then ids beyond the slices.
        self._rows = size + 3
        shape = (n_pairs, self._rows, 2, ROW_WIDTH)
        self._packed = torch.zeros(shape, dtype=torch.int64, device=device)
        self._pending = [0] * n_pairs  # tokens of each pair in _packed
        self._counts = torch.zeros(shape, dtype=torch.int64, device=device)
        self._fractions = torch.zeros(shape, dtype=torch.int64, device=device)
        self._lows = torch.zeros((n_pairs, self._rows), dtype=torch.float32, device=device)  # smallest r, at most 0
        self._highs = torch.zeros((n_pairs, self._rows), dtype=torch.float32, device=device)  # largest r, at least 0
        self._sequences = torch.zeros((n_pairs, N_SEQUENCE, size), dtype=torch.float64, device=device)
        self._targets = self._packed.view(n_pairs, -1).unbind(0)
        self._slice_lows, self._slice_highs = (x.narrow(1, 2, size).unbind(0) for x in (self._lows, self._highs))
        self.device = self._counts.device
        self._constants = _constants(self.device)
        self._scratch = _Scratch(0, 0, size, self.device)

    def reset(self) -> None:
        """Forget all tokens; the buffers stay."""
        for buffer in (self._packed, self._counts, self._fractions, self._lows, self._highs, self._sequences):
            buffer.zero_()
        self._pending = [0] * len(self.pairs)

    @torch.no_grad()
    def update(
        self, pair: str, log_ratio: torch.Tensor, slice_ids: torch.Tensor, mask: torch.Tensor, *, again: bool = False
    ) -> None:
        """Count the tokens of one batch.

        Args:
            pair: one of `pairs`.
            log_ratio: (B, T), nats, any floating dtype; on this sketch's device.
            slice_ids: (B, T), integers that index `slices`.
            mask: (B, T), bool, integer or float; non-zero marks a response token.
            again: the batch has come before, for other slices: what the mask leaves out is not counted twice.

        Raises:
            InputError: an unknown pair, or a tensor on another device or of a wrong dtype.
            LayoutError: a shape that is not (B, T) or differs.
        """
        number = self._check(pair, log_ratio, slice_ids, mask)
        rows, columns = log_ratio.shape
        if rows == 0 or columns == 0:
            return
        limit = CPU_CHUNK if self.device.type == "cpu" else DEVICE_CHUNK
        step = min(max(limit // max(columns, self._rows), 1), rows)
        if step * columns > self._scratch.tokens or step > self._scratch.rows:
            tokens, most = max(step * columns, self._scratch.tokens), max(step, self._scratch.rows)
            self._scratch = _Scratch(tokens, most, len(self.slices), self.device)
        if step == rows:
            self._count(number, log_ratio, slice_ids, mask, again=again)
            return
        for start in range(0, rows, step):
            size = min(step, rows - start)
            self._count(number, *(x.narrow(0, start, size) for x in (log_ratio, slice_ids, mask)), again=again)

    def _check(self, pair: str, log_ratio: torch.Tensor, slice_ids: torch.Tensor, mask: torch.Tensor) -> int:
        if pair not in self.pairs:
            raise InputError(f"pair: got {pair!r}, expected one of {self.pairs}. Name it when making the sketch.")
        if log_ratio.ndim != 2:
            raise LayoutError(f"log_ratio: got shape {tuple(log_ratio.shape)}, expected (B, T). Reshape it.")
        for name, tensor in (("slice_ids", slice_ids), ("mask", mask)):
            if tensor.shape != log_ratio.shape:
                raise LayoutError(
                    f"{name}: got shape {tuple(tensor.shape)}, expected {tuple(log_ratio.shape)}, the shape of "
                    "log_ratio. Align the two."
                )
        for name, tensor in (("log_ratio", log_ratio), ("slice_ids", slice_ids), ("mask", mask)):
            if tensor.device != self.device:
                raise InputError(f"{name}: got device {tensor.device}, expected {self.device}. Move it there first.")
        if not log_ratio.is_floating_point():
            raise InputError(f"log_ratio: got {log_ratio.dtype}, expected a floating dtype. Convert it first.")
        if slice_ids.is_floating_point():
            raise InputError(f"slice_ids: got {slice_ids.dtype}, expected integers. Convert them first.")
        return self.pairs.index(pair)

    def _count(
        self, pair: int, log_ratio: torch.Tensor, slice_ids: torch.Tensor, mask: torch.Tensor, *, again: bool
    ) -> None:
        s, k = self._scratch.views(*log_ratio.shape), self._constants
        is_response = mask if mask.dtype == torch.bool else mask.ne(0)
        torch.add(log_ratio, k.zero, out=s.r_by_sequence)  # −0.0 becomes +0.0
        torch.abs(s.r, out=s.magnitude)

        # Sign and cell, as in buckets.locate. A row's width more in the cell makes up for a sign of −1 or 0.
        torch.sub(s.cell, k.largest_finite, out=s.special).clamp_(0, 2)  # 0 finite, 1 infinite, 2 NaN
        s.cell.bitwise_right_shift_(k.shift).sub_(k.first_cell).clamp_(ROW_WIDTH, ROW_WIDTH + N_BUCKETS + 1)
        s.cell.add_(s.special)
        torch.bitwise_right_shift(s.bits, k.sign_shift, out=s.sign)  # −1 where r < 0

        # place = (row · 2 + sign) · ROW_WIDTH + cell
        if slice_ids.dtype == torch.bool:  # as the monitor has them: single bytes cost next to nothing
            torch.add(slice_ids.view(torch.int8), k.two_int8, out=s.small_by_sequence)
            copy(s.row_by_sequence, s.small_by_sequence.mul_(is_response.view(torch.int8)))
        else:
            copy(s.row_by_sequence, slice_ids)
            s.row.add_(k.two).clamp_(1, self._rows - 1)
            s.row_by_sequence.mul_(is_response)
        s.sign.add_(s.row, alpha=2)
        torch.add(s.cell, s.sign, alpha=ROW_WIDTH, out=s.place)
        torch.bitwise_and(s.bits, k.fraction_mask, out=s.packed).bitwise_or_(k.count_unit)
        if again:
            s.packed_by_sequence.mul_(is_response)
        self._scatter(pair, s)

        s.row.add_(s.special, alpha=self._rows)  # from here on, NaN and ±inf are beyond the slices
        if len(self.slices) <= MAX_MASKED_SLICES:
            self._mask_each_slice(pair, s)
        else:
            self._scatter_to_slices(pair, s)
        self._add_sequences(pair, s)

    def _scatter(self, pair: int, s: _Views) -> None:
        """Add the packed number of each token at its place."""
        for place, packed in s.pieces:
            if self._pending[pair] + place.numel() > MAX_PENDING:
                self._flush(pair)
            self._targets[pair].scatter_add_(0, place, packed)
            self._pending[pair] += place.numel()

    def _flush(self, pair: int) -> None:
        """Move a pair's packed counts and fractions to the accumulators."""
        packed = self._packed.select(0, pair)
        self._counts.select(0, pair).add_(packed.bitwise_right_shift(COUNT_BITS))
        self._fractions.select(0, pair).add_(packed.bitwise_and_(COUNT_UNIT - 1))
        packed.zero_()
        self._pending[pair] = 0

    def _mask_each_slice(self, pair: int, s: _Views) -> None:
        """Extremes, and n and Σr per sequence, from one copy of the tokens per slice; 0 outside the slice."""
        torch.eq(s.row, s.numbers, out=s.inside)
        torch.mul(s.bits, s.inside, out=s.masked_bits)
        low, high = self._slice_lows[pair], self._slice_highs[pair]
        torch.minimum(low, torch.amin(s.masked, 1), out=low)
        torch.maximum(high, torch.amax(s.masked, 1), out=high)
        copy(s.wide, s.masked.clamp_(-LARGEST, LARGEST))
        torch.sum(s.inside_by_sequence, 2, dtype=torch.int32, out=s.sizes)
        copy(s.n, s.sizes)
        torch.sum(s.wide_by_sequence, 2, out=s.total)

    def _scatter_to_slices(self, pair: int, s: _Views) -> None:
        """The same by scatters, at a cost that does not depend on the number of slices."""
        copy(s.place, s.row.clamp_(max=self._rows - 1))
        self._lows.select(0, pair).scatter_reduce_(0, s.place, s.r, "amin")
        self._highs.select(0, pair).scatter_reduce_(0, s.place, s.r, "amax")
        s.place_by_sequence.add_(s.offsets)
        copy(s.addends.select(0, 1), s.r.clamp_(-LARGEST, LARGEST))
        s.sums.zero_().scatter_add_(1, s.place.expand(2, -1), s.addends)
        n, total = s.sums.view(2, -1, self._rows).narrow(2, 2, len(self.slices)).transpose(1, 2).unbind(0)
        copy(s.n, n)
        copy(s.total, total)

    def _add_sequences(self, pair: int, s: _Views) -> None:
        """Add the ratio of each sequence, from n and Σr of each slice and sequence."""
        torch.clamp(s.n, min=1, out=s.square)
        s.total.div_(s.square).exp_()
        s.n.clamp_(max=1)  # 1 where the sequence has tokens of the slice
        s.total.mul_(s.n)
        torch.mul(s.total, s.total, out=s.square)
        self._sequences.select(0, pair).add_(s.sequences.sum(2))

    def has_tokens(self) -> torch.Tensor:
        """Whether any response token of a slice came since the last reset, finite or not: booleans by pair, (P,)."""
        for pair in range(len(self.pairs)):
            self._flush(pair)
        return self._counts.narrow(1, 2, len(self.slices)).sum((1, 2, 3)) > 0

    def pack(self) -> torch.Tensor:
        """Everything as one float64 vector on the device, ready for one SUM all-reduce over `world_size` workers."""
        n_pairs, size = len(self.pairs), len(self.slices)
        for pair in range(n_pairs):
            self._flush(pair)
        counts, fractions = (x.narrow(1, 2, size).double() for x in (self._counts, self._fractions))
        fractions.select(3, 0).zero_()
        fractions.select(3, N_CELLS - 1).zero_()
        below, above = counts.select(3, INF_CELL).unbind(2)
        tallies = {NAN: counts.select(3, NAN_CELL).sum(2), POS_INF: above, NEG_INF: below}
        tokens = self._counts.sum((2, 3)).double()
        masked, before, beyond = (tokens.select(1, row) for row in (0, 1, self._rows - 1))
        nothing = counts.new_zeros((n_pairs, 2 * size))
        extremes = [nothing] * self.world_size
        lows, highs = (x.narrow(1, 2, size) for x in (self._lows, self._highs))
        extremes[self.rank] = torch.cat((lows.abs(), highs), 1).double()
        parts = (
            counts.narrow(3, 0, N_CELLS),
            fractions.narrow(3, 0, N_CELLS),
            torch.stack([tallies[column] for column in sorted(tallies)], 2),
            self._sequences.transpose(1, 2),
            torch.stack((masked, before + beyond), 1),
            *extremes,
        )
        return torch.cat([part.reshape(n_pairs, -1) for part in parts], 1).view(-1)


def packed_length(pairs: Sequence[str], slices: Sequence[str], world_size: int) -> int:
    """Length of the vector from `DeviceSketch.pack`, in float64 numbers."""
    size = len(slices)
    return len(pairs) * (size * (4 * N_CELLS + 3 + N_SEQUENCE) + 2 + world_size * 2 * size)


def unpack(
    buffer: npt.NDArray[np.float64], pairs: Sequence[str], slices: Sequence[str], world_size: int = 1
) -> dict[str, LogRatioSketch]:
    """The sketch of each pair from the sum of the workers' packed vectors.

    LayoutError when the length is not that of these pairs, slices and world size.
    """
    expected = packed_length(pairs, slices, world_size)
    if buffer.shape != (expected,):
        raise LayoutError(
            f"buffer: got shape {buffer.shape}, expected ({expected},) for pairs {tuple(pairs)}, slices "
            f"{tuple(slices)} and world size {world_size}. Use the pairs, slices and world size of the sketch."
        )
    return {
        pair: _unpack_pair(part, slices, world_size)
        for pair, part in zip(pairs, buffer.reshape(len(pairs), -1), strict=True)
    }


def _unpack_pair(part: npt.NDArray[np.float64], slices: Sequence[str], world_size: int) -> LogRatioSketch:
    sketch = LogRatioSketch(tuple(slices))
    start = 0
    for array in (sketch.counts, sketch.fractions, sketch.tallies, sketch.sequences):
        array[...] = part[start : start + array.size].reshape(array.shape)
        start += array.size
    sketch.masked, sketch.outside = int(part[start]), int(part[start + 1])
    extremes = part[start + 2 :].reshape(world_size, 2, len(sketch.slices))
    sketch.extremes[...] = extremes.max(0).T
    return sketch


class _Constants(NamedTuple):
    """Scalars on the device; a Python number would be made into a tensor by every operation anew."""

    zero: torch.Tensor  # float32; the others are int32, the last two are int8 and int64
    two: torch.Tensor
    shift: torch.Tensor
    sign_shift: torch.Tensor
    first_cell: torch.Tensor
    fraction_mask: torch.Tensor
    largest_finite: torch.Tensor
    two_int8: torch.Tensor
    count_unit: torch.Tensor


def _constants(device: torch.device) -> _Constants:
    def scalar(value: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
        return torch.full((), value, dtype=dtype, device=device)

    return _Constants(
        zero=scalar(0, torch.float32),
        two=scalar(2),
        shift=scalar(SHIFT),
        sign_shift=scalar(31),
        first_cell=scalar(FIRST_INDEX - ROW_WIDTH),
        fraction_mask=scalar(FRACTION_MASK),
        largest_finite=scalar(INFINITY_BITS - 1),
        two_int8=scalar(2, torch.int8),
        count_unit=scalar(COUNT_UNIT, torch.int64),
    )


class _Scratch:
    """Buffers that every update writes over, for up to `tokens` tokens in up to `rows` sequences."""

    def __init__(self, tokens: int, rows: int, slices: int, device: torch.device) -> None:
        self.tokens, self.rows, self.slices = tokens, rows, slices
        copies = slices if slices <= MAX_MASKED_SLICES else 0
        self.floats = torch.empty((2, tokens), dtype=torch.float32, device=device)
        self.integers = torch.empty((3, tokens), dtype=torch.int32, device=device)
        self.small = torch.empty(tokens, dtype=torch.int8, device=device)
        self.longs = torch.empty(max(copies, 2) * tokens, dtype=torch.int64, device=device)
        self.copies = torch.empty(2 * copies * tokens, dtype=torch.int32, device=device)
        self.sizes = torch.empty(copies * rows, dtype=torch.int32, device=device)
        self.numbers = torch.arange(2, copies + 2, dtype=torch.int32, device=device).unsqueeze(1)
        self.per_sequence = torch.empty(3 * slices * rows, dtype=torch.float64, device=device)
        if not copies:
            self.offsets = (torch.arange(rows, device=device) * (slices + 3)).unsqueeze(1)
            self.addends = torch.ones((2, tokens), dtype=torch.float64, device=device)
            self.sums = torch.empty(2 * (slices + 3) * rows, dtype=torch.float64, device=device)
        self._views = _Views(self, 0, 0)

    def views(self, rows: int, columns: int) -> _Views:
        """The part of the buffers that (rows, columns) tokens need."""
        if (rows, columns) != self._views.shape:
            self._views = _Views(self, rows, columns)
        return self._views


class _Views:
    """The part of a _Scratch that (B, T) tokens in S slices need: (N,) with N = B · T, or (B, T) where so named."""

    def __init__(self, scratch: _Scratch, rows: int, columns: int) -> None:
        self.shape, n, size = (rows, columns), rows * columns, scratch.slices
        self.r, self.magnitude = scratch.floats.narrow(1, 0, n).unbind(0)
        self.bits, self.cell = self.r.view(torch.int32), self.magnitude.view(torch.int32)
        self.special, self.sign, self.row = scratch.integers.narrow(1, 0, n).unbind(0)
        self.small_by_sequence = scratch.small.narrow(0, 0, n).view(self.shape)
        self.place, self.packed = scratch.longs.narrow(0, 0, 2 * n).view(2, n).unbind(0)
        pieces = [(start, min(MAX_PENDING, n - start)) for start in range(0, n, MAX_PENDING)]
        self.pieces = [(self.place.narrow(0, *piece), self.packed.narrow(0, *piece)) for piece in pieces]
        self.r_by_sequence, self.row_by_sequence = self.r.view(self.shape), self.row.view(self.shape)
        self.packed_by_sequence = self.packed.view(self.shape)
        self.sequences = scratch.per_sequence.narrow(0, 0, 3 * size * rows).view(3, size, rows)
        self.n, self.total, self.square = self.sequences.unbind(0)
        if size <= MAX_MASKED_SLICES:
            self.numbers = scratch.numbers
            self.inside, self.masked_bits = scratch.copies.narrow(0, 0, 2 * size * n).view(2, size, n).unbind(0)
            self.masked = self.masked_bits.view(torch.float32)
            self.wide = scratch.longs.narrow(0, 0, size * n).view(size, n).view(torch.float64)  # over place and packed
            self.inside_by_sequence = self.inside.view(size, rows, columns)
            self.wide_by_sequence = self.wide.view(size, rows, columns)
            self.sizes = scratch.sizes.narrow(0, 0, size * rows).view(size, rows)
        else:
            self.place_by_sequence = self.place.view(self.shape)
            self.offsets = scratch.offsets.narrow(0, 0, rows)
            self.addends = scratch.addends.narrow(1, 0, n)  # 1 and r
            self.sums = scratch.sums.narrow(0, 0, 2 * (size + 3) * rows).view(2, -1)
