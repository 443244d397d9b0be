from __future__ import annotations

import random

import pytest
import rollout_dumps as dumps
from rollout_dumps import Sample

from foreshock.audit import retokenisation


def corrupt(steps: list[list[Sample]], share: float, everywhere: bool = False) -> None:
    """Change the trainer's log-probability of a share of the tokens after tool results, or of all."""
    draw = random.Random(0)
    for sample in (sample for samples in steps for sample in samples):
        start = 0 if everywhere else sample.mask.index(0)
        for place in range(start, len(sample.mask)):
            if sample.mask[place] and draw.random() < share:
                sample.old[place] -= 2.0


def test_no_gap(tallied, healthy) -> None:
    assert retokenisation.check(tallied(healthy)).judged


@pytest.mark.parametrize("write", [dumps.nemo_rl, dumps.prime_rl, dumps.slime, dumps.skyrl])
def test_a_gap_after_tool_results_is_found(tallied, healthy, write) -> None:
    corrupt(healthy, 0.08)
    (finding,) = retokenisation.check(tallied(healthy, write)).findings
    assert finding.severity == "warning"
    assert finding.slice == "post_tool"
    assert finding.evidence[1]["apart"] == pytest.approx(0.08, abs=0.03)


def test_an_engine_that_differs_everywhere_is_no_retokenisation(tallied, healthy) -> None:
    corrupt(healthy, 0.08, everywhere=True)
    assert retokenisation.check(tallied(healthy)).judged


def test_a_dump_that_begins_late_cannot_show_it(tallied) -> None:
    steps = [[] for _ in range(40)] + [dumps.rollouts(step, count=16) for step in range(5)]
    (gap,) = retokenisation.check(tallied(steps)).cannot_judge
    assert "begins at step 41" in gap.reason


def test_too_few_tokens(tallied) -> None:
    (gap,) = retokenisation.check(tallied([dumps.rollouts(0, count=2)])).cannot_judge
    assert "500 are needed" in gap.reason


def test_without_tool_results_there_is_no_question(tallied, healthy) -> None:
    for sample in (sample for samples in healthy for sample in samples):
        end = sample.mask.index(0)
        for column in (sample.ids, sample.mask, sample.rollout, sample.old, sample.ref):
            del column[end:]
    result = retokenisation.check(tallied(healthy))
    assert (result.findings, result.cannot_judge, result.judged) == ((), (), ())
