from __future__ import annotations

import pytest

from foreshock.audit import placeholders


def test_none(tallied, healthy) -> None:
    assert placeholders.check(tallied(healthy)).judged


@pytest.mark.parametrize(("rows", "severity"), [(16, "warning"), (1, "note")])
def test_zeros_in_place_of_log_probabilities_are_counted(tallied, healthy, rows: int, severity: str) -> None:
    for sample in healthy[1][:rows]:
        sample.rollout[1], sample.old[1] = 0.0, -2.0
    (finding,) = placeholders.check(tallied(healthy)).findings
    assert finding.severity == severity
    assert finding.summary.startswith(f"{rows} trained tokens (")
    assert finding.steps == (2, 2)


def test_a_sampler_that_is_certain_where_the_trainer_nearly_is_is_no_placeholder(tallied, healthy) -> None:
    for sample in healthy[1]:
        sample.rollout[1], sample.old[1] = 0.0, -0.01
    assert placeholders.check(tallied(healthy)).judged


def test_stretches_are_left_to_the_mask(tallied, healthy) -> None:
    for sample in healthy[2]:
        sample.mask[:] = [1] * len(sample.mask)
    assert placeholders.check(tallied(healthy)).judged


def test_a_policy_with_nothing_but_zeros_is_named(tallied, healthy) -> None:
    (finding,) = placeholders.check(tallied(healthy, forced=True)).findings
    assert finding.severity == "note"
    assert "The old log-probabilities of all" in finding.summary
