"""Per-step counts of what went through the monitor, kept on the device until a block is full."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from foreshock.batch import PAIRS

POLICIES = ("rollout", "old", "ref", "advantages", "policy")
"""Tensors that are checked for non-finite values, in the order in which a step computes them."""

NAMES = (
    "rows",
    "response_tokens",
    "observation_tokens",
    "post_tool_tokens",
    "unscored_tokens",
    "micro_batches",
    "errors",
    "stop",
    *(f"nonfinite/{name}" for name in POLICIES),
    *(f"workers/{pair}" for pair in PAIRS),
)


class StepCounters:
    """Counts with one row a step of the block, shape ``(steps, len(NAMES))``, float64.

    All additions stay on the device; nothing here waits for it.
    """

    def __init__(self, steps: int, device: torch.device) -> None:
        self._counts = torch.zeros((steps, len(NAMES)), dtype=torch.float64, device=device)

    def add(self, step_in_block: int, name: str, amount: torch.Tensor | float) -> None:
        """Add to one counter of one step."""
        self._counts.select(0, step_in_block).select(0, NAMES.index(name)).add_(amount)

    def pack(self) -> torch.Tensor:
        """Return the counts as one vector, ready for a SUM over workers."""
        return self._counts.reshape(-1).clone()

    def reset(self) -> None:
        """Begin a new block."""
        self._counts.zero_()


def unpack(vector: npt.NDArray[np.float64], steps: int) -> dict[str, tuple[float, ...]]:
    """Return the counts by name with one entry a step, from a summed vector; only the first ``steps`` rows count."""
    table = vector.reshape(-1, len(NAMES))[:steps]
    return {name: tuple(table[:, column].tolist()) for column, name in enumerate(NAMES)}
