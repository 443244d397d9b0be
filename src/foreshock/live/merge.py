"""Merging over workers: one SUM all-reduce of one fixed buffer a block, collected one step later."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist


def worker_rank() -> tuple[int, int]:
    """Return ``(rank, world_size)`` of the default process group; ``(0, 1)`` without one."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


class PendingSum:
    """The sum of one buffer over all workers, under way.

    Every worker must start the same sums in the same order; what a buffer holds changes nothing about that. Starting
    one never waits. :meth:`result` waits for the copy to the host, which by the next step has long been made.
    """

    def __init__(self, buffer: torch.Tensor) -> None:
        self._work: Any = None
        self._copied: torch.cuda.Event | None = None
        _, world_size = worker_rank()
        if world_size > 1:
            self._work = dist.all_reduce(buffer, op=dist.ReduceOp.SUM, async_op=True)
        if buffer.is_cuda:
            if self._work is not None:
                self._work.wait()  # makes the stream wait, not the host
            self._host = torch.empty(buffer.shape, dtype=buffer.dtype, pin_memory=True)
            self._host.copy_(buffer, non_blocking=True)
            self._copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._copied.record()
        else:
            self._host = buffer

    def result(self) -> npt.NDArray[np.float64]:
        """Return the sum as a float64 vector on the host."""
        if self._copied is not None:
            self._copied.synchronize()
        elif self._work is not None:
            self._work.wait()
        return self._host.cpu().numpy()
