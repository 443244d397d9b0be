"""The pages of rules, and that those in docs/rules are up to date."""

import ast
import inspect
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

from foreshock.rules import BUILT_IN
from foreshock.rules.finding import SEVERITIES
from foreshock.rules.page import SECTIONS, page_of

DOCS = Path(__file__).parents[2] / "docs"


def test_the_committed_pages_are_what_the_docstrings_say():
    expected = runpy.run_path(str(DOCS / "generate.py"))["pages"]()
    written = {path.name: path.read_text(encoding="utf-8") for path in (DOCS / "rules").glob("*.md")}
    assert set(written) == set(expected), "run: python docs/generate.py"
    for name, text in expected.items():
        assert written[name] == text, f"docs/rules/{name} is out of date; run: python docs/generate.py"


@pytest.mark.parametrize("rule", BUILT_IN, ids=lambda rule: rule.ID)
def test_a_built_in_rule_states_its_needs_and_the_severities_that_its_code_holds(rule):
    assert rule.NEEDS
    tree = ast.parse(inspect.getsource(rule))
    stated = [node for node in ast.walk(tree) if isinstance(node, ast.Assign) and _target(node) == "SEVERITIES"]
    tree.body.remove(stated[0])
    held = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)} & set(SEVERITIES)
    assert set(rule.SEVERITIES) == held
    assert list(rule.SEVERITIES) == sorted(rule.SEVERITIES, key=SEVERITIES.index)


def _target(node):
    return getattr(node.targets[0], "id", "")


@pytest.mark.parametrize("rule", BUILT_IN, ids=lambda rule: rule.ID)
def test_a_page_has_every_section_and_no_markup_of_docstrings(rule):
    page = page_of(rule)
    assert tuple(page.sections) == SECTIONS
    text = page.to_markdown()
    assert "``" not in text
    assert ":data:" not in text
    assert f"## Known problems\n\n{page.sections['Known problems']}\n\n## Example" in text


def test_a_users_rule_needs_no_sections():
    rule = SimpleNamespace(ID="mine", __doc__="Mine: it is.\n\nUses :func:`foreshock.diagnose` on ``reward``.")
    page = page_of(rule)
    assert page.summary == "Mine: it is."
    assert page.sections == {"": "Uses `foreshock.diagnose` on `reward`."}
    assert page.to_markdown().endswith("Mine: it is.\n\n**Severity:** not stated\n\n" + page.sections[""] + "\n")
