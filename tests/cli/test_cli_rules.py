"""``foreshock rules``, ``foreshock explain`` and the choice of rules in ``foreshock diagnose``."""

import json
import re

import pytest
from click.testing import CliRunner

from foreshock import audit
from foreshock.cli import main
from foreshock.rules import BUILT_IN
from foreshock.traces.checks import described

RULE = (
    '[[rule]]\nid = "low-reward"\nmetric = "reward"\ncondition = "< 2"\n'
    'message = "The reward is low."\nseverity = "critical"\n'
)


@pytest.fixture
def call():
    runner = CliRunner()
    return lambda *arguments: runner.invoke(main, list(arguments), env={"NO_COLOR": "1", "COLUMNS": "100"})


@pytest.fixture
def declared(tmp_path):
    path = tmp_path / "team.toml"
    path.write_text(RULE)
    return str(path)


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(json.dumps({"step": step, "reward": 1.0}) for step in range(1, 50)))
    return str(path)


def test_rules_lists_every_rule_with_one_line(call, declared):
    text = call("rules", "--rules", declared).output
    for rule in BUILT_IN:
        assert rule.ID in text
    assert "low-reward  critical\n  Low-reward: The reward is low." in re.sub(" +\n", "\n", text)
    assert "  Needs completions/clipped_ratio." in text
    assert "KL runaway: the policy leaves its reference ever faster." in text
    document = json.loads(call("rules", "--json").output)
    assert [rule["id"] for rule in document["rules"]] == [rule.ID for rule in BUILT_IN]
    assert {check["id"] for check in document["traces"]} >= {"trace-loops", "trace-cost-outliers"}
    assert "audit-mask" in [check["id"] for check in document["audit"]]
    assert "trace-loops" in text
    assert set(document["rules"][0]) == {"id", "summary", "severities", "needs", "sections"}


@pytest.mark.parametrize("rule", [*BUILT_IN, *audit.CHECKS, *described.CHECKS], ids=lambda rule: rule.ID)
def test_explain_shows_the_page(call, rule):
    result = call("explain", rule.ID)
    assert result.exit_code == 0
    for heading in ("What", "Why it matters", "Known problems", "References"):
        assert heading in result.output
    assert json.loads(call("explain", "--json", rule.ID).output)["rule"]["id"] == rule.ID


def test_explain_knows_the_rules_of_a_file(call, declared):
    assert "The reward is low." in call("explain", "low-reward", "--rules", declared).output


def test_an_unknown_rule_is_one_line_with_near_matches_and_exit_code_2(call, log):
    for arguments in (("explain", "zero-signal"), ("diagnose", log, "--select", "zero-signal")):
        result = call(*arguments)
        assert result.exit_code == 2
        assert "There is no rule 'zero-signal'. Did you mean zero-learning-signal" in result.output
        assert len(result.output.splitlines()) == 1


def test_diagnose_takes_files_of_rules_and_a_choice(call, log, declared):
    found = call("diagnose", log, "--rules", declared)
    assert found.exit_code == 1
    assert "low-reward" in found.output
    assert call("diagnose", log, "--rules", declared, "--ignore", "low-reward").exit_code == 3
    alone = json.loads(call("diagnose", log, "--rules", declared, "--select", "low-reward", "--json").output)
    assert [finding["rule"] for finding in alone["runs"][0]["findings"]] == ["low-reward"]
    assert alone["runs"][0]["cannot_judge"] == []


def test_a_file_that_is_wrong_is_exit_code_2(call, log, tmp_path):
    (tmp_path / "bad.toml").write_text(RULE.replace('"< 2"', '"below 2"'))
    result = call("diagnose", log, "--rules", str(tmp_path / "bad.toml"))
    assert result.exit_code == 2
    assert "bad.toml: rule 1 (low-reward): field 'condition': got 'below 2', expected < a" in result.output
