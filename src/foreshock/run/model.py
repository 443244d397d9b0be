"""A run: everything that the rules may see, wherever it came from."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from foreshock.batch import PAIRS
from foreshock.run.block import Block
from foreshock.run.series import Series
from foreshock.run.stored import StoredBlocks

_NON_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


@dataclass(slots=True)
class Run:
    """One training run: scalar series by key, blocks in the order of their steps, and what is known beside them.

    ``identity``: model, tokenizer, dataset, versions, git state, configuration; empty for a foreign log.
    ``notices``: plain sentences by code, on what could not be watched and what to set.
    ``skipped``: what was read but not used, counted by reason.
    """

    path: Path | None = None
    identity: Mapping[str, Any] = field(default_factory=dict)
    series: dict[str, Series] = field(default_factory=dict)
    blocks: list[Block] | StoredBlocks = field(default_factory=list)
    notices: dict[str, str] = field(default_factory=dict)
    skipped: Counter[str] = field(default_factory=Counter)
    derived: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """What rules computed of the series so far, by name, so that several rules share it."""
    bounded: bool = False
    """Whether its series are bounded, as in the process that trains; see :class:`Series`."""

    def append_scalars(self, step: int, values: Mapping[str, Any]) -> None:
        """Add one logged row; values that are not numbers are counted, not kept."""
        for key, value in values.items():
            number = _NON_FINITE.get(value) if isinstance(value, str) else value
            if isinstance(number, (int, float)) and not isinstance(number, bool):
                if key not in self.series:
                    self.series[key] = Series(key, bounded=self.bounded)
                self.series[key].append(step, float(number))
            elif value is not None:
                self.skipped["values that are not numbers"] += 1

    @property
    def pairs(self) -> list[str]:
        """The pairs that any block has."""
        if isinstance(self.blocks, StoredBlocks):
            return self.blocks.pairs
        return list(dict.fromkeys(pair for block in self.blocks for pair in block.sketches))

    @property
    def pair(self) -> str | None:
        """The pair that the detectors judge: the first in the order of :data:`PAIRS` that any block has.

        Only one pair is judged, so that the stated false-alarm rate is that of one test.
        """
        pairs = self.pairs
        return next((pair for pair in PAIRS if pair in pairs), None)

    @property
    def planned_steps(self) -> int | None:
        """How many steps the run was to take, where its record says so."""
        for part in ("watch", "trainer_state"):
            recorded = self.identity.get(part)
            planned = recorded.get("max_steps") if isinstance(recorded, Mapping) else None
            if isinstance(planned, int) and planned > 0:
                return planned
        return None

    @property
    def last_step(self) -> int:
        """The last step that a row or a block speaks of; 0 for an empty run."""
        steps = [int(series.steps[-1]) for series in self.series.values() if len(series)]
        steps += [block.last_step for block in self.blocks[-1:]]
        return max(steps, default=0)
