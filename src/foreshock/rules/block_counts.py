"""Counts over all blocks of a run, kept so that a pass over a live run reads only its new blocks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from foreshock.run import Block, Run

NOT_FINITE = "nonfinite/"
"""What the counters of non-finite values begin with; the name of the tensor follows."""

SUMMED = ("errors", "response_tokens", "post_tool_tokens")


@dataclass(slots=True)
class BlockCounts:
    """Sums over the blocks read so far of :data:`SUMMED` and of the non-finite values of each tensor, by counter.

    ``first``: the step of the first one that was not 0.
    """

    total: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    first: dict[str, int] = field(default_factory=dict)
    _read: int = 0
    _last: Block | None = None

    def extend(self, blocks: Sequence[Block]) -> bool:
        """Read the blocks that are new; False when those read before are not the start of ``blocks``."""
        if self._read > len(blocks) or (self._read and blocks[self._read - 1] != self._last):
            return False
        for place in range(self._read, len(blocks)):
            self._add(blocks[place])
        self._read, self._last = len(blocks), blocks[-1] if blocks else None
        return True

    def _add(self, block: Block) -> None:
        for name in block.counters:
            if name not in SUMMED and not name.startswith(NOT_FINITE):
                continue
            values = block.counters[name]
            self.total[name] += sum(values)
            place = next((place for place, value in enumerate(values) if value), None)
            if place is not None:
                self.first.setdefault(name, block.first_step + place)


def block_counts(run: Run) -> BlockCounts:
    """Return the counts over all blocks of a run."""
    known = run.derived.get("counts")
    if isinstance(known, BlockCounts) and known.extend(run.blocks):
        return known
    counts = run.derived["counts"] = BlockCounts()
    counts.extend(run.blocks)
    return counts
