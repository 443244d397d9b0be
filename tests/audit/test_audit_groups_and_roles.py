from __future__ import annotations

from collections import Counter
from pathlib import Path

from foreshock.audit import group_sizes, roles
from foreshock.traces import Episode, Traces

USER, CALL, RESULT, ANSWER = ({"role": role, "content": "x"} for role in ("user", "assistant", "tool", "assistant"))


def test_equal_groups_are_judged_so(tallied, healthy) -> None:
    result = group_sizes.check(tallied(healthy).groups)
    assert result.judged == ("groups of 4",)


def test_groups_that_lost_rows_are_counted(tallied, healthy) -> None:
    del healthy[3][0]
    (finding,) = group_sizes.check(tallied(healthy).groups).findings
    assert finding.severity == "note"
    assert finding.summary == "4.2% of the groups do not have the 4 rollouts that most have."
    assert finding.steps == (4, 4)
    assert finding.evidence == ({"rollouts": 3, "groups": 1}, {"rollouts": 4, "groups": 23})


def test_single_rollouts_are_said_to_be_so() -> None:
    (finding,) = group_sizes.check({1: Counter({7: 1, 8: 1})}).findings
    assert "Most prompts have a single rollout (2 of 2)" in finding.summary


def traces(*episodes: Episode) -> Traces:
    return Traces(Path("completions"), "TRL completions", episodes)


def test_roles_in_order() -> None:
    assert roles.check(traces(Episode("0", [USER], [CALL, RESULT, ANSWER]))).judged


def test_roles_out_of_order_are_counted_by_kind() -> None:
    good = Episode("0", [USER], [ANSWER])
    bad = [Episode("1", [USER, ANSWER], [ANSWER]), Episode("2", [USER], [USER]), Episode("3", [RESULT, USER], [ANSWER])]
    (finding,) = roles.check(traces(good, *bad)).findings
    assert finding.severity == "warning"
    assert {row["what"]: row["rollouts"] for row in finding.evidence} == {
        "the prompt ends with a message of the policy": 1,
        "the response begins with a message of the role user": 1,
        "a tool result answers no call": 1,
    }


def test_plain_text_has_no_roles() -> None:
    (gap,) = roles.check(traces(Episode("0", [USER], [ANSWER], is_text=True))).cannot_judge
    assert "plain text" in gap.reason
