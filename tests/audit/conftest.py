from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import rollout_dumps as dumps
from rollout_dumps import Sample

from foreshock.audit.tally import Tally
from foreshock.sources.dumps import open_dump


@pytest.fixture
def tallied(tmp_path: Path) -> Callable[..., Tally]:
    """Count rollouts after they were written and read as a dump of NeMo-RL, or of another trainer."""

    def tally(
        steps: Sequence[Sequence[Sample]], write: Callable[..., Path] = dumps.nemo_rl, **options: object
    ) -> Tally:
        dump = open_dump(write(tmp_path / "dump", steps, **options))
        found = Tally()
        for path in dump.files:
            skipped: Counter[str] = Counter()
            found.add_file(list(dump.format.read(path, skipped)), skipped)
        return found

    return tally


@pytest.fixture
def healthy() -> list[list[Sample]]:
    return [dumps.rollouts(step, count=16) for step in range(6)]
