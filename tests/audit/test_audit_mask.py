from __future__ import annotations

import pytest
import rollout_dumps as dumps

from foreshock.audit import mask


def test_a_right_mask_is_judged_so(tallied, healthy) -> None:
    result = mask.check(tallied(healthy))
    assert not result.findings
    assert not result.cannot_judge
    assert result.judged


@pytest.mark.parametrize(("rows", "severity"), [(8, "critical"), (1, "warning")])
def test_trained_tool_results_are_found_by_their_stretches(tallied, healthy, rows: int, severity: str) -> None:
    trained = 0
    for sample in healthy[2][:rows]:
        trained += sample.mask.count(0)
        sample.mask[:] = [1] * len(sample.mask)
    (finding,) = mask.check(tallied(healthy)).findings
    assert finding.severity == severity
    assert finding.steps == (3, 3)
    assert {row["what"]: row["tokens"] for row in finding.evidence}["in stretches"] == trained


def test_single_placeholders_are_no_trained_tool_results(tallied, healthy) -> None:
    for sample in healthy[0]:
        sample.rollout[0] = 0.0
        sample.old[0] = -3.0
    assert not mask.check(tallied(healthy)).findings


@pytest.mark.parametrize("write", [dumps.nemo_rl, dumps.prime_rl, dumps.slime, dumps.skyrl])
def test_an_inverted_mask_is_named(tallied, healthy, write) -> None:
    for samples in healthy:
        for sample in samples:
            sample.mask[:] = [1 - kept for kept in sample.mask]
    (finding,) = mask.check(tallied(healthy, write)).findings
    assert finding.severity == "critical"
    assert "The loss mask looks inverted: 100% of the trained tokens were never sampled" in finding.summary


def test_without_the_samplers_log_probabilities_it_cannot_be_judged(tallied, healthy) -> None:
    tally = tallied(healthy)
    tally.policies.discard("rollout")
    (gap,) = mask.check(tally).cannot_judge
    assert "no log-probabilities of the sampler" in gap.reason
