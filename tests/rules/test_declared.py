"""Rules that a user declares in TOML."""

import math

import numpy as np
import pytest

from foreshock.errors import RuleError
from foreshock.rules.declared import FIELDS, read_rules
from foreshock.rules.page import page_of
from foreshock.run import Run

WHOLE = {
    "id": '"short-answers"', "metric": '"completions/mean_length"', "condition": '"drop(60%)"',
    "message": '"Answers have become short."',
}  # fmt: skip


def written(tmp_path, **fields):
    path = tmp_path / "team.toml"
    lines = [f"{name} = {value}" for name, value in {**WHOLE, **fields}.items() if value is not None]
    path.write_text("[[rule]]\n" + "\n".join(lines) + "\n")
    return path


def rule(tmp_path, **fields):
    (only,) = read_rules(written(tmp_path, **fields))
    return only


def make_run(late=100.0, *, steps=200, key="completions/mean_length", trainer="GRPOTrainer"):
    rng = np.random.default_rng(0)
    run = Run(identity={"trainer": trainer} if trainer else {})
    for step in range(1, steps + 1):
        level = 300.0 if step <= steps // 2 else late
        run.append_scalars(step, {key: level + rng.normal(), "reward": 0.5})
    return run


def test_a_drop_against_the_runs_own_level_is_a_finding_that_says_it_is_a_heuristic(tmp_path):
    (finding,) = rule(tmp_path, severity='"critical"', window=20).check(make_run()).findings
    assert (finding.rule, finding.severity, finding.steps) == ("short-answers", "critical", (181, 200))
    assert finding.summary.startswith("Answers have become short. completions/mean_length meets drop(60%): mean 99.9")
    assert "of the last 20 rows, 300 at the start of the run." in finding.summary
    assert "heuristic" in finding.certainty
    assert [row["segment"] for row in finding.evidence] == ["early", "middle", "late"]


def test_what_does_not_hold_was_judged(tmp_path):
    result = rule(tmp_path).check(make_run(late=300.0))
    assert (result.findings, result.cannot_judge) == ((), ())
    assert result.judged == ("not drop(60%) (completions/mean_length)",)


@pytest.mark.parametrize(
    ("fields", "run", "reason"),
    [
        ({}, {"key": "completions/mean_len"}, "is not logged. Logged are completions/mean_len."),
        ({}, {"steps": 5}, "has 5 finite rows, 10 are asked for."),
        ({}, {"steps": 15}, "has no level at the start of the run to compare with."),
        ({}, {"late": math.nan, "steps": 12}, "has 6 finite rows, 10 are asked for."),
        ({"min_steps": 500}, {}, "the run has 200 steps, 500 are asked for."),
        ({"trainers": '["GRPOTrainer"]'}, {"trainer": None}, "does not say which trainer it had."),
    ],
)
def test_what_is_missing_is_said_and_is_not_silence(tmp_path, fields, run, reason):
    result = rule(tmp_path, **fields).check(make_run(**run))
    assert result.findings == ()
    assert reason in str(result.cannot_judge[0])


def test_a_rule_for_another_trainer_says_nothing(tmp_path):
    result = rule(tmp_path, trainers='["DPOTrainer"]').check(make_run())
    assert (result.findings, result.cannot_judge, result.judged) == ((), (), ())


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"id": None}, "team.toml: rule 1: got no field 'id', expected lower-case words joined by hyphens."),
        ({"id": '"Short Answers"'}, "field 'id': got 'Short Answers', expected lower-case words joined by hyphens."),
        ({"metric": "3"}, "rule 1 (short-answers): field 'metric': got 3, expected the name of a logged key."),
        ({"severity": '"high"'}, "field 'severity': got 'high', expected one of note, warning, critical."),
        ({"window": "0"}, "field 'window': got 0, expected a whole number from 1 on."),
        ({"window": "true"}, "field 'window': got True, expected a whole number from 1 on."),
        ({"min_steps": "-1"}, "field 'min_steps': got -1, expected a whole number from 0 on."),
        ({"trainers": '"GRPOTrainer"'}, "field 'trainers': got 'GRPOTrainer', expected a list of trainer class names."),
        ({"condition": '"below 3"'}, "field 'condition': got 'below 3', expected < a, <= a,"),
        ({"mesage": '"x"'}, "got the field 'mesage', expected one of id, metric, condition, message"),
        ({"mesage": '"x"'}, "Did you mean 'message'?"),
    ],
)
def test_a_wrong_field_is_named_with_file_rule_got_and_expected(tmp_path, fields, message):
    with pytest.raises(RuleError) as refused:
        read_rules(written(tmp_path, **fields))
    assert message in str(refused.value)
    assert "team.toml: rule 1" in str(refused.value)


@pytest.mark.parametrize("text", ["", "rule = 3", "rule = [1]", "[rules]\nid = 'x'", "[[rule]", "\x00"])
def test_what_is_no_file_of_rules_is_refused(tmp_path, text):
    path = tmp_path / "team.toml"
    path.write_text(text)
    with pytest.raises(RuleError, match=r"team\.toml.* expected|team\.toml.* Expected"):
        read_rules(path)


def test_a_declared_rule_has_a_page(tmp_path):
    page = page_of(rule(tmp_path, severity='"note"', reference='"our wiki"'))
    assert (page.id, page.severities, page.needs) == ("short-answers", ("note",), "completions/mean_length")
    assert page.summary == "Short-answers: Answers have become short."
    assert page.sections["References"] == "Our wiki"


def test_the_documented_fields_are_those_of_the_code():
    from pathlib import Path

    text = (Path(__file__).parents[2] / "docs" / "plugins.md").read_text()
    table = text[text.index("| field |") : text.index("| condition |")]
    documented = [line.split("`")[1] for line in table.splitlines() if line.startswith("| `")]
    assert sorted(documented) == sorted(FIELDS)
