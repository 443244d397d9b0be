"""Rules from files and packages, and rules that fail."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import foreshock
from foreshock import plugins
from foreshock.diagnosis import diagnose_run
from foreshock.errors import RuleError
from foreshock.plugins import Hooks, load_rules
from foreshock.rules import BUILT_IN
from foreshock.rules.finding import Finding, RuleResult
from foreshock.run import Run
from foreshock.views import words

DOCS = Path(__file__).parents[1] / "docs"

SIMPLE = '''"""Simple: always.

What: nothing.
"""

from foreshock.rules.finding import Finding, RuleResult

ID = "simple"


def check(run):
    return RuleResult((Finding(ID, "warning", "It is so.", (1, run.last_step), cause="mine"),))
'''


def fences(page, language):
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)


def healthy_run(**values):
    rng = np.random.default_rng(0)
    run = Run()
    for step in range(1, 201):
        run.append_scalars(step, {"reward": 0.5 + 0.05 * rng.normal(), **{key: of(step) for key, of in values.items()}})
    return run


def a_rule(check, name="mine"):
    return SimpleNamespace(ID=name, __doc__="Mine: a rule.", check=check)


@pytest.fixture
def simple(tmp_path):
    path = tmp_path / "simple.py"
    path.write_text(SIMPLE)
    return path


def test_the_documented_rule_works(tmp_path):
    path = tmp_path / "stalled.py"
    path.write_text(next(code for code in fences("plugins.md", "python") if "def check" in code))
    rules = load_rules([path], select=["stalled-clock"])
    slow = diagnose_run(healthy_run(step_time=lambda step: 12.0 if step < 120 else 31.0), rules)
    assert [finding.summary for finding in slow.findings] == ["A step takes 31 s, 12 s at the start."]
    assert slow.causes[0].name == "environment fault"
    assert diagnose_run(healthy_run(step_time=lambda step: 12.0), rules).findings == ()


def test_the_documented_declared_rule_works(tmp_path):
    path = tmp_path / "team.toml"
    path.write_text(next(code for code in fences("plugins.md", "toml") if "[[rule]]" in code))
    run = healthy_run(**{"completions/mean_length": lambda step: 300.0 if step < 120 else 90.0})
    run.identity = {"trainer": "GRPOTrainer"}
    assert diagnose_run(run, load_rules([path], select=["short-answers"])).verdict == "critical"


def test_rules_of_users_stand_beside_the_built_in_ones(simple):
    rules = load_rules([simple, a_rule(lambda run: RuleResult())])
    assert rules[: len(BUILT_IN)] == BUILT_IN
    assert [rule.ID for rule in rules[len(BUILT_IN) :]] == ["simple", "mine"]
    diagnosis = diagnose_run(healthy_run(), rules)
    assert (diagnosis.verdict, diagnosis.causes[0].name) == ("warning", "mine")


def test_diagnose_takes_rules_and_chooses_among_them(tmp_path, simple):
    log = tmp_path / "log.jsonl"
    log.write_text("\n".join(json.dumps({"step": step, "reward": 1.0}) for step in range(1, 50)))
    assert foreshock.diagnose(log, rules=[simple]).verdict == "warning"
    assert foreshock.diagnose(log, rules=[simple], ignore=["simple"]).verdict == "cannot_judge"
    alone = foreshock.diagnose(log, rules=[simple], select=["simple", "simple"])
    assert (len(alone.findings), alone.cannot_judge) == (1, ())
    assert alone.not_asked == tuple(rule.ID for rule in BUILT_IN)


def test_a_run_of_which_few_rules_were_asked_is_not_called_healthy():
    few = diagnose_run(healthy_run(), load_rules(select=["kl-runaway"]))
    assert (few.verdict, words.verdict_word(few)) == ("healthy", "No warning")
    assert f"Left out by choice: {len(BUILT_IN) - 1} rules." in words.verdict_sentence(few)
    assert diagnose_run(healthy_run()).not_asked == ()


def test_a_file_may_hold_several_rules_by_the_hook(tmp_path):
    path = tmp_path / "several.py"
    path.write_text(
        "from types import SimpleNamespace\n"
        "from foreshock.plugins import hookimpl\n"
        "def rule(name):\n"
        "    return SimpleNamespace(ID=name, __doc__='A rule.', check=lambda run: None)\n"
        "@hookimpl\n"
        "def foreshock_rules():\n"
        "    return [rule('b'), rule('a')]\n"
    )
    assert [rule.ID for rule in load_rules([path])[-2:]] == ["b", "a"]


def test_a_rule_that_raises_ends_nothing_and_is_counted():
    def failing(run):
        raise KeyError("no such key")

    diagnosis = diagnose_run(healthy_run(), [a_rule(failing), a_rule(lambda run: RuleResult(judged=("x",)), "other")])
    assert diagnosis.verdict == "cannot_judge"
    assert str(diagnosis.cannot_judge[0]).startswith("mine: The rule itself failed (KeyError: 'no such key').")
    assert diagnosis.skipped == {"rules that failed": 1}


def test_numpy_numbers_of_a_rule_are_plain_in_the_document():
    rows = ({"level": np.float32(0.5), "rows": np.int64(3), "is": np.bool_(True)},)
    finding = Finding("mine", "warning", "x", (np.int64(1), np.int64(2)), evidence=rows)
    diagnosis = diagnose_run(healthy_run(), [a_rule(lambda run: RuleResult((finding,)))])
    (document,) = json.loads(json.dumps(diagnosis.to_dict()))["findings"]
    assert document["steps"] == [1, 2]
    assert document["evidence"] == [{"level": 0.5, "rows": 3, "is": True}]


@pytest.mark.parametrize(
    ("result", "problem"),
    [
        (None, "check returned a NoneType, not a RuleResult"),
        (RuleResult((Finding("mine", "fatal", "x", (1, 2)),)), "got the severity 'fatal', expected one of note"),
        (RuleResult((Finding("mine", "note", None, (1, 2)),)), "got summary None and steps (1, 2), expected text"),
        (RuleResult((Finding("mine", "note", "x", (1.5, 2)),)), "expected text and two whole numbers"),
        (RuleResult(("text",)), "AttributeError"),
    ],
)
def test_a_rule_that_returns_something_else_is_said_to_have_failed(result, problem):
    (gap,) = diagnose_run(healthy_run(), [a_rule(lambda run: result)]).cannot_judge
    assert problem in gap.reason


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1", "got a rule with ID None, expected lower-case words"),
        ('"""Doc."""\nID = "Bad Name"\ndef check(run): ...', "got a rule with ID 'Bad Name'"),
        ('ID = "bad"\ndef check(run): ...', "the rule bad has no docstring"),
        ('"""Doc."""\nID = "bad"', "the rule bad has no check(run)"),
        ('"""Doc."""\nID = "bad"\ndef check(run, more): ...', "the rule bad has no check(run)"),
        ('"""Doc."""\nID = "kl-runaway"\ndef check(run): ...', "Two rules are called 'kl-runaway'."),
        ("import nothing_of_this_name", "cannot be imported (ModuleNotFoundError"),
        ("1 +", "cannot be imported (SyntaxError"),
        ("from foreshock.plugins import hookimpl\n@hookimpl\ndef foreshock_rules(): return 1 / 0", "ZeroDivisionError"),
        ("from foreshock.plugins import hookimpl\n@hookimpl\ndef foreshock_rules(run): ...", "Argument(s) {'run'}"),
        (
            "from foreshock.plugins import hookimpl\n@hookimpl\ndef foreshock_rule(): ...",
            "unknown hook 'foreshock_rule'",
        ),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_with_its_name_and_the_reason(tmp_path, text, message):
    path = tmp_path / "bad_rules.py"
    path.write_text(text)
    with pytest.raises(RuleError) as refused:
        load_rules([path])
    assert message in str(refused.value)
    assert "kl-runaway" in message or "bad_rules.py" in str(refused.value)


def test_other_files_and_missing_ones_are_refused(tmp_path):
    with pytest.raises(RuleError, match=r"Expected a file that ends in \.toml or \.py\."):
        load_rules([tmp_path / "rules.yaml"])
    for name in ("missing.py", "missing.toml"):
        with pytest.raises(RuleError, match=name):
            load_rules([tmp_path / name])


def test_an_unknown_identifier_is_refused_with_those_spelled_alike():
    for choice in ({"select": ["kl-runway"]}, {"ignore": ["kl-runway"]}):
        with pytest.raises(RuleError, match=r"no rule 'kl-runway'\. Did you mean kl-runaway"):
            load_rules(**choice)
    with pytest.raises(RuleError, match=r"no rule 'zzz'\. foreshock rules lists them all\."):
        load_rules(select=["zzz"])


def test_there_is_one_hook_and_the_documents_name_it():
    hooks = [name for name in vars(Hooks) if not name.startswith("_")]
    assert hooks == ["foreshock_rules"]
    assert plugins._manager().hook.foreshock_rules.spec.argnames == ()
    assert "def foreshock_rules():" in (DOCS / "plugins.md").read_text()
    (group,) = (code for code in fences("plugins.md", "toml") if "entry-points" in code)
    assert group.startswith(f"[project.entry-points.{plugins.NAME}]")


def install(folder, name, module):
    """Put a package with an entry point into a folder, as an installer would."""
    (folder / f"{name}.py").write_text(module)
    information = folder / f"{name}-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(f"[foreshock]\n{name} = {name}\n")


def test_rules_of_an_installed_package_are_used_and_a_broken_one_is_not_taken_for_health(tmp_path):
    hook = (
        "\nimport sys\nfrom foreshock.plugins import hookimpl\n@hookimpl\ndef foreshock_rules(): "
        "return [sys.modules[__name__]]\n"
    )
    install(tmp_path, "good", SIMPLE + hook)
    install(tmp_path, "broken", "raise RuntimeError('an old version')")
    install(tmp_path, "taken", SIMPLE.replace('"simple"', '"kl-runaway"') + hook)
    log = tmp_path / "log.jsonl"
    log.write_text("\n".join(json.dumps({"step": step, "reward": 1.0}) for step in range(1, 50)))
    paths = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", "foreshock", "diagnose", "--json", str(log)],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": paths},
    )
    (run,) = json.loads(done.stdout)["runs"]
    assert [finding["rule"] for finding in run["findings"]] == ["simple"]
    gaps = "\n".join(run["cannot_judge"])
    assert "plug-in-broken: The plug-in broken cannot be loaded (RuntimeError: an old version)." in gaps
    assert "Two rules are called 'kl-runaway'." in gaps
