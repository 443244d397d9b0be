"""The documents say what the code does."""

import inspect
import re
from pathlib import Path

import pytest

from foreshock.cli import main

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_options_exist(page):
    for command, rest in re.findall(r"^foreshock (\w+)(.*)$", page.read_text(), re.MULTILINE):
        assert command in main.commands, f"{page.name} names foreshock {command}"
        known = {option for parameter in main.commands[command].params for option in parameter.opts}
        for option in re.findall(r"--[a-z-]+", rest.split("#")[0]):
            assert option in known, f"{page.name}: foreshock {command} has no {option}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_make_targets_that_the_readme_names_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"(?:^|`)make ([a-z-]+)", (ROOT / "README.md").read_text(), re.MULTILINE)) <= targets


def test_the_options_of_watch_are_documented():
    from foreshock.adapters.trl import ForeshockCallback

    text = (ROOT / "docs" / "watching.md").read_text()
    table = text[text.index("## Options") : text.index("## In the trainer")]
    documented = {
        name for row in re.findall(r"^\| (.*?) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)
    }
    assert documented == set(inspect.signature(ForeshockCallback).parameters)


def test_the_documented_constants_are_those_of_the_code():
    from foreshock.detect import e_process, growth, series_change, tail
    from foreshock.lab.plan import MODELS
    from foreshock.rules import tail_course, warm_up

    text = (ROOT / "docs" / "detectors.md").read_text()
    assert f"({MODELS['tiny'].steps_per_block} in the demo)" in text
    assert f"Below {tail.MINIMUM_TOKENS} tokens" in text
    assert f"at least {growth.STANDARD_ERRORS} standard errors" in text
    assert f"log p{100 * tail.BULK:.0f} of the same slice" in text
    assert f"growth of the tail level of at least ×{tail_course.MINIMUM_GROWTH}" in text
    assert f"growth of ×{tail_course.CRITICAL_GROWTH}" in text
    assert f"one false alarm per {e_process.WARNING_STEPS:,} steps" in text
    assert f"at least {warm_up.SHORTEST_WARM_UP} and at most {warm_up.LONGEST_WARM_UP}" in text
    assert f"at least {series_change.SMALLEST_SHARE:.0%}".replace("%", " %") in text


def test_test_files_have_names_of_their_own():
    """Pytest imports them by their names alone, and cannot collect two that are called alike."""
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert sorted(names) == sorted(set(names))
