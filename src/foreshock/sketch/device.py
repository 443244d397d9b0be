"""DeviceSketch: the sketch of a training step, kept on the accelerator. The one torch file of the core.

`update` launches a fixed series of operations on preallocated buffers. It never waits for the device: no value is
read back, no shape depends on data. Masked tokens are sent to a row of their own instead of being selected.
Counting follows `buckets` to the bit, and the sums follow `moments`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from foreshock.errors import InputError, LayoutError
from foreshock.sketch.buckets import (
    FIRST_INDEX,
    INF_CELL,
    INFINITY_BITS,
    MAGNITUDE_MASK,
    N_BUCKETS,
    N_CELLS,
    NAN_CELL,
    ROW_WIDTH,
    SHIFT,
)
from foreshock.sketch.log_ratio import NAN, NEG_INF, POS_INF, LogRatioSketch, check_slices
from foreshock.sketch.moments import (
    CAP_POINTS,
    CAPPED,
    CLIP,
    INVERSE_U,
    N_MOMENTS,
    N_SEQUENCE,
    U2,
    R,
    U,
)

CPU_CHUNK = 1 << 17  # tokens; larger batches are counted in parts that mostly stay in the processor's cache
DEVICE_CHUNK = 1 << 20  # tokens; bounds the scratch buffers, about 80 bytes a token
# Additions to one address wait for each other, and neighbouring tokens mostly share sequence and slice. So columns take
# turns among this many copies of each sum.
LANES = 4


class DeviceSketch:
    """All pairs and slices of one block in one set of buffers on `device`.

    The promises: constant memory, no host synchronisation in `update`, and one vector of fixed length from `pack`
    that one SUM all-reduce merges, whatever the data: counts to the bit, sums to rounding. The smallest and largest
    log-ratio sit in slots of their rank's own, so that the sum leaves them as they are.

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
        size = len(self.slices)
        # Rows: 0 is for ids below 0, then the slices, then ids beyond the slices, then masked tokens.
        self._rows = size + 3
        self._trash = size + 2
        n_pairs, cells = len(self.pairs), self._rows * 2 * ROW_WIDTH
        self._counts = torch.zeros((n_pairs, cells), dtype=torch.int64, device=device)
        self._excess = torch.zeros((n_pairs, 2, cells), dtype=torch.float64, device=device)  # Σu, Σu²
        self._sums = torch.zeros((n_pairs, 3, self._rows), dtype=torch.float64, device=device)  # n, Σr, Σ(e^−r − 1)
        self._sequences = torch.zeros((n_pairs, N_SEQUENCE, self._rows), dtype=torch.float64, device=device)
        self._extremes = torch.zeros((n_pairs, 2, LANES * self._rows), dtype=torch.float32, device=device)
        self.device = self._counts.device
        self._scratch = _Scratch(0, 0, self._rows, self.device)
        self.reset()

    def reset(self) -> None:
        """Forget all tokens; the buffers stay."""
        for buffer in (self._counts, self._excess, self._sums, self._sequences):
            buffer.zero_()
        smallest, largest = self._extremes.unbind(1)
        smallest.fill_(math.inf)
        largest.fill_(-math.inf)

    @torch.no_grad()
    def update(self, pair: str, log_ratio: torch.Tensor, slice_ids: torch.Tensor, mask: torch.Tensor) -> None:
        """Count the tokens of one batch.

        Args:
            pair: one of `pairs`.
            log_ratio: (B, T), nats, any floating dtype; on this sketch's device.
            slice_ids: (B, T), integers that index `slices`.
            mask: (B, T), bool, integer or float; non-zero marks a response token.

        Raises:
            InputError: an unknown pair, or a tensor on another device or of a wrong dtype.
            LayoutError: a shape that is not (B, T) or differs.
        """
        number = self._check(pair, log_ratio, slice_ids, mask)
        rows, columns = log_ratio.shape
        if rows == 0 or columns == 0:
            return
        limit = CPU_CHUNK if self.device.type == "cpu" else DEVICE_CHUNK
        step = max(limit // max(columns, LANES * self._rows), 1)
        scratch = self._scratch_for(min(step, rows), columns)
        for start in range(0, rows, step):
            size = min(step, rows - start)
            part, ids, keep = (x.narrow(0, start, size) for x in (log_ratio, slice_ids, mask))
            self._count(number, part, ids, keep, scratch)

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

    def _scratch_for(self, rows: int, columns: int) -> _Scratch:
        tokens = max(rows * columns, self._scratch.tokens)
        rows = max(rows, self._scratch.rows)
        if (tokens, rows) != (self._scratch.tokens, self._scratch.rows):
            self._scratch = _Scratch(tokens, rows, self._rows, self.device)
        return self._scratch

    def _count(
        self, pair: int, log_ratio: torch.Tensor, slice_ids: torch.Tensor, mask: torch.Tensor, scratch: _Scratch
    ) -> None:
        shape = log_ratio.shape
        n = shape.numel()
        r, bits, cell, special, row, sign, place, r64, ratio, u, u2 = scratch.views(n)
        torch.add(log_ratio, 0.0, out=r.view(shape))  # −0.0 becomes +0.0

        # Sign and cell, as in buckets.cell_of.
        torch.bitwise_and(bits, MAGNITUDE_MASK, out=cell)
        torch.sub(cell, INFINITY_BITS - 1, out=special).clamp_(0, 2)  # 0 finite, 1 infinite, 2 NaN
        cell.bitwise_right_shift_(SHIFT).sub_(FIRST_INDEX).clamp_(0, N_BUCKETS + 1).add_(special)

        # Row, counted back from the row of masked tokens, so that multiplying by 0 sends a token there.
        torch.clamp(slice_ids.to(torch.int32), -1, len(self.slices), out=row.view(shape))
        row.sub_(self._trash - 1)
        row.view(shape).mul_(mask if mask.dtype == torch.bool else mask.ne(0))

        # place = (row · 2 + sign) · ROW_WIDTH + cell
        torch.bitwise_right_shift(bits, 31, out=sign)  # −1 where r < 0
        sign.add_(1 + 2 * self._trash).add_(row, alpha=2)
        torch.add(cell, sign, alpha=ROW_WIDTH, out=place)
        self._counts.select(0, pair).scatter_add_(0, place, scratch.ones.narrow(0, 0, n))

        # Sums of u = e^r − 1 and u² per cell. Cells of NaN and masked tokens may hold anything; they are never read.
        torch.clamp(r.double(), -CLIP, CLIP, out=r64)
        torch.exp(r64, out=ratio)
        torch.sub(ratio, 1, out=u)
        torch.mul(u, u, out=u2)
        self._excess.select(0, pair).scatter_add_(
            1, place.expand(2, n), scratch.doubles.narrow(1, 0, n).narrow(0, 3, 2)
        )

        # From here on, NaN and ±inf go where masked tokens go.
        row.addcmul_(row, special.clamp_(max=1), value=-1)
        torch.add(row.view(shape), scratch.lanes.narrow(0, 0, shape[1]), out=place.view(shape))
        smallest, largest = self._extremes.select(0, pair).unbind(0)
        smallest.scatter_reduce_(0, place, r, "amin")
        largest.scatter_reduce_(0, place, r, "amax")
        place.view(shape).add_(scratch.offsets.narrow(0, 0, shape[0]))
        ratio.reciprocal_().sub_(1)
        self._add_rows(pair, shape[0], place, scratch)

    def _add_rows(self, pair: int, rows: int, place: torch.Tensor, scratch: _Scratch) -> None:
        """Sums per sequence and slice; they give the sequence ratios, and added up the sums per slice."""
        tokens = place.numel()
        by_lane = scratch.row_sums.narrow(1, 0, rows * LANES * self._rows).zero_()
        by_lane.scatter_add_(1, place.expand(3, tokens), scratch.doubles.narrow(1, 0, tokens).narrow(0, 0, 3))
        by_row = by_lane.view(3, rows, LANES, self._rows).sum(2)
        self._sums.select(0, pair).add_(by_row.sum(1))
        n, w, w2 = by_row.unbind(0)  # becomes, per sequence and slice, 1 where there are tokens, then w and w²
        w.div_(n.clamp(min=1)).exp_()
        n.clamp_(max=1)
        w.mul_(n)
        torch.mul(w, w, out=w2)
        self._sequences.select(0, pair).add_(by_row.sum(1))

    def pack(self) -> torch.Tensor:
        """Everything as one float64 vector on the device, ready for one SUM all-reduce over `world_size` workers."""
        n_pairs, size = len(self.pairs), len(self.slices)

        def per_slice(buffer: torch.Tensor, dim: int) -> torch.Tensor:
            return buffer.narrow(dim, 1, size)

        every = self._counts.view(n_pairs, self._rows, 2, ROW_WIDTH)
        counts = per_slice(every, 1).double()
        below, above = counts.select(3, INF_CELL).unbind(2)
        tallies: dict[int, torch.Tensor] = {
            NAN: counts.select(3, NAN_CELL).sum(2),
            POS_INF: above,
            NEG_INF: below,
        }
        finite = counts.narrow(3, 0, N_CELLS)
        excess, excess2 = (per_slice(x.view(every.shape), 1).narrow(3, 0, N_CELLS) for x in self._excess.unbind(1))
        _, total, inverse_total = per_slice(self._sums, 2).unbind(1)
        moments: dict[int, torch.Tensor] = {
            R: total,
            U: excess.sum((2, 3)),
            U2: excess2.sum((2, 3)),
            INVERSE_U: inverse_total,
        }
        for number, cap in enumerate(CAP_POINTS):
            capped = finite.select(2, 1).narrow(2, cap.cell, N_CELLS - cap.cell).sum(2)
            for power, sums in ((1, excess), (2, excess2)):
                negative, positive = sums.unbind(2)
                kept = negative.sum(2) + positive.narrow(2, 0, cap.cell).sum(2)
                moments[CAPPED + 2 * number + power - 1] = kept + capped * cap.excess**power
        tokens = every.sum((2, 3)).double()
        masked, before, beyond = (tokens.select(1, row) for row in (self._trash, 0, self._trash - 1))
        by_lane = self._extremes.view(n_pairs, 2, LANES, self._rows)
        smallest, largest = by_lane.select(1, 0).amin(1), by_lane.select(1, 1).amax(1)
        nothing = finite.new_zeros((n_pairs, 2 * size))
        extremes = [nothing] * self.world_size
        extremes[self.rank] = torch.cat((per_slice(smallest, 1), per_slice(largest, 1)), 1).double()
        parts = (
            finite,
            _columns(tallies),
            _columns(moments),
            per_slice(self._sequences, 2).transpose(1, 2),
            torch.stack((masked, before + beyond), 1),
            *extremes,
        )
        return torch.cat([part.reshape(n_pairs, -1) for part in parts], 1).view(-1)


def _columns(columns: dict[int, torch.Tensor]) -> torch.Tensor:
    """Tensors (P, S) by column number, as one (P, S, columns)."""
    return torch.stack([columns[number] for number in range(len(columns))], 2)


def packed_length(pairs: Sequence[str], slices: Sequence[str], world_size: int) -> int:
    """Length of the vector from `DeviceSketch.pack`, in float64 numbers."""
    size = len(slices)
    return len(pairs) * (size * (2 * N_CELLS + 3 + N_MOMENTS + N_SEQUENCE) + 2 + world_size * 2 * size)


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
    for array in (sketch.counts, sketch.tallies, sketch.moments, sketch.sequences):
        array[...] = part[start : start + array.size].reshape(array.shape)
        start += array.size
    sketch.masked, sketch.outside = int(part[start]), int(part[start + 1])
    extremes = part[start + 2 :].reshape(world_size, 2, len(sketch.slices))
    sketch.extremes[:, 0] = extremes[:, 0].min(0)
    sketch.extremes[:, 1] = extremes[:, 1].max(0)
    return sketch


class _Scratch:
    """Buffers that every update writes over."""

    def __init__(self, tokens: int, rows: int, width: int, device: torch.device) -> None:
        self.tokens, self.rows = tokens, rows
        self._n = -1
        self._views: tuple[torch.Tensor, ...] = ()
        self.r = torch.empty(tokens, dtype=torch.float32, device=device)
        self.integers = torch.empty((4, tokens), dtype=torch.int32, device=device)
        self.place = torch.empty(tokens, dtype=torch.int64, device=device)
        self.ones = torch.ones(tokens, dtype=torch.int64, device=device)
        self.doubles = torch.ones((5, tokens), dtype=torch.float64, device=device)  # 1, r, e^±r, u, u²
        # Added to a token's row: its lane (and the count back from the row of masked tokens), then its sequence.
        self.lanes = (torch.arange(tokens, device=device, dtype=torch.int32) % LANES) * width + (width - 1)
        self.offsets = (torch.arange(rows, device=device) * LANES * width).unsqueeze(1)
        self.row_sums = torch.empty((3, rows * LANES * width), dtype=torch.float64, device=device)

    def views(self, n: int) -> tuple[torch.Tensor, ...]:
        """The first n tokens of each buffer: r, its bits, four integers, place, and r, e^r, u, u² in float64."""
        if n != self._n:
            r = self.r.narrow(0, 0, n)
            integers, doubles = self.integers.narrow(1, 0, n), self.doubles.narrow(0, 1, 4).narrow(1, 0, n)
            self._n = n
            self._views = (
                r,
                r.view(torch.int32),
                *integers.unbind(0),
                self.place.narrow(0, 0, n),
                *doubles.unbind(0),
            )
        return self._views
