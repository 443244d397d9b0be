"""Attribution: which tokens make the tail, kept on the device with bounded memory.

Of every row the token with the largest |log-ratio| in each built-in slice is a candidate, so that one broken row cannot
fill the list; of all candidates of a block the largest :data:`KEPT` a slice and worker stay.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import torch

from foreshock.batch import SLICES, TokenBatch
from foreshock.run import TopToken
from foreshock.sketch.buckets import INFINITY_BITS, MAGNITUDE_MASK

KEPT = 16
"""Tokens kept per slice, worker and block."""

CHUNK = 1 << 18
"""Tokens that are looked at in one go; bounds the temporaries."""

FIELDS = ("log_ratio", "step", "turn", "position", "token", "previous", "tool")

Decode = Callable[[int], str]


class TopTokens:
    """The tokens with the largest |log-ratio| of one pair in one block, per built-in slice: text-only, then post-tool.

    Every operation stays on the device and has shapes that no data changes.
    """

    def __init__(self, device: torch.device, *, rank: int, world_size: int) -> None:
        self._rank, self._world_size = rank, world_size
        empty = torch.zeros((KEPT, len(FIELDS)), dtype=torch.float64, device=device)
        self._tables = [empty.clone() for _ in SLICES]

    def update(
        self,
        batch: TokenBatch,
        log_ratio: torch.Tensor,
        post_tool: torch.Tensor,
        response: torch.Tensor,
        step_in_block: int,
    ) -> None:
        """Take in the log-ratios of one micro-batch; values that are not finite are left out.

        ``post_tool`` and ``response`` are boolean, and like ``log_ratio`` of shape ``(B, T)``.
        """
        if batch.token_ids is None or log_ratio.numel() == 0:
            return
        pieces = math.ceil(log_ratio.numel() / CHUNK)
        parts = zip(*(values.chunk(pieces) for values in (log_ratio, post_tool, response)), strict=True)
        maxima = torch.cat([torch.stack([part.amax(1) for part in _in_each_slice(*some)]) for some in parts], 1)
        for index, kept in enumerate(self._tables):
            # The largest of a row is cheap, where it stands is not: ask that of the rows that can enter the list only.
            rows = maxima.select(0, index).topk(min(KEPT, len(log_ratio))).indices
            inside = _in_each_slice(*(values.index_select(0, rows) for values in (log_ratio, post_tool, response)))
            largest, column = inside[index].max(dim=1)
            found = _describe(batch, batch.token_ids, log_ratio, rows, column, step_in_block)
            candidates = torch.where((largest > 0).unsqueeze(1), found, 0.0)  # 0 where the row has none in this slice
            table = torch.cat([kept, candidates])
            largest_of_all = table.select(1, 0).abs().topk(KEPT).indices
            self._tables[index] = table.index_select(0, largest_of_all)

    def pack(self) -> torch.Tensor:
        """Return the table in this worker's slot of a zero vector, so that a SUM over workers keeps all tables."""
        own = torch.stack(self._tables).reshape(-1)
        before, after = self._rank, self._world_size - self._rank - 1
        return torch.cat([own.new_zeros(before * len(own)), own, own.new_zeros(after * len(own))])

    def reset(self) -> None:
        """Begin a new block."""
        for table in self._tables:
            table.zero_()


def unpack(
    vector: npt.NDArray[np.float64],
    first_step: int,
    world_size: int,
    decode: Decode | None = None,
    tools: Sequence[str] = (),
) -> dict[str, tuple[TopToken, ...]]:
    """Return the largest tokens of all workers by slice, largest first, at most :data:`KEPT` each.

    ``tools`` are the names behind the numbers of :attr:`TokenBatch.tools`.
    """
    tables = vector.reshape(world_size, len(SLICES), KEPT, len(FIELDS))
    found = {}
    for index, name in enumerate(SLICES):
        rows = tables[:, index].reshape(-1, len(FIELDS))
        rows = rows[rows[:, 0] != 0]
        rows = rows[np.argsort(-np.abs(rows[:, 0]), kind="stable")][:KEPT]
        found[name] = tuple(_top_token(row, first_step, decode, tools) for row in rows.tolist())
    return found


def _top_token(row: list[float], first_step: int, decode: Decode | None, tools: Sequence[str]) -> TopToken:
    step, turn, position, token, previous, tool = map(int, row[1:])
    text, before = (decode(number) if decode is not None and number >= 0 else "" for number in (token, previous))
    name = tools[tool] if 0 <= tool < len(tools) else ""
    return TopToken(row[0], first_step + step, turn, position, token, previous, text, before, name)


def _in_each_slice(
    log_ratio: torch.Tensor, post_tool: torch.Tensor, response: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the bits of |log-ratio| of the tokens of each slice, all ``(B, T)`` of int32, which sort as it does.

    0 outside the slice and where it is not finite. Multiplied, because selecting takes ten times as long on a CPU.
    """
    bits = log_ratio.contiguous().view(torch.int32).bitwise_and(MAGNITUDE_MASK)
    bits.mul_(torch.lt(bits, INFINITY_BITS, out=torch.empty_like(bits)))
    after = response & post_tool
    return bits * (response ^ after), bits * after


def _describe(
    batch: TokenBatch,
    ids: torch.Tensor,
    log_ratio: torch.Tensor,
    rows: torch.Tensor,
    column: torch.Tensor,
    step_in_block: int,
) -> torch.Tensor:
    """Return :data:`FIELDS` of one token in each of some rows, ``(R, 7)``, from its row and column ``(R,)``."""
    ids, log_ratio = ids.index_select(0, rows), log_ratio.index_select(0, rows)
    observation = batch.observation_mask.index_select(0, rows) != 0
    response = batch.response_mask.index_select(0, rows) != 0
    at = column.unsqueeze(1)
    columns = torch.arange(log_ratio.shape[1], device=log_ratio.device).unsqueeze(0)
    before = columns < at
    starts = observation & torch.nn.functional.pad(observation, (1, -1)).logical_not()
    turn = (starts & before).sum(1)
    last_observation = torch.where(observation & before, columns, -1).amax(1, keepdim=True)
    position = (response & before & (columns > last_observation)).sum(1)
    previous = torch.where(column > 0, ids.gather(1, (at - 1).clamp(min=0)).squeeze(1), -1)
    parts = (
        log_ratio.gather(1, at).squeeze(1),
        torch.full_like(column, step_in_block),
        turn,
        position,
        ids.gather(1, at).squeeze(1),
        previous,
        _tool_behind(batch, rows, turn),
    )
    return torch.stack([part.double() for part in parts], dim=1)


def _tool_behind(batch: TokenBatch, rows: torch.Tensor, turn: torch.Tensor) -> torch.Tensor:
    """Return the number of the tool whose result is the last one before each token, ``(R,)``; −1 when not known."""
    if batch.tools is None:
        return torch.full_like(turn, -1)
    tools = batch.tools.index_select(0, rows)
    last = tools.shape[1] - 1
    found = tools.gather(1, turn.clamp(max=last).unsqueeze(1)).squeeze(1)
    return torch.where(turn <= last, found, -1)
