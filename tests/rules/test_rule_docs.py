"""Every rule's docstring has the sections from which its page is made."""

import re

import pytest

from foreshock import audit
from foreshock.rules import BUILT_IN
from foreshock.traces.checks import described

SECTIONS = ["What", "Why it matters", "Known problems", "Example", "Options", "References"]

DESCRIBED = [*BUILT_IN, *audit.CHECKS, *described.CHECKS]


@pytest.mark.parametrize("rule", DESCRIBED, ids=lambda rule: rule.ID)
def test_a_title_with_one_sentence_and_then_every_section_in_order(rule):
    title, _, body = rule.__doc__.partition("\n\n")
    assert re.fullmatch(r"[A-Z][^:\n]+: [^\n]+\.", title)
    sections = re.findall(r"^([A-Z][A-Za-z ]+):(?=\s+\S)", body, re.MULTILINE)
    assert sections == SECTIONS


def test_identifiers_are_unique():
    assert len({rule.ID for rule in DESCRIBED}) == len(DESCRIBED)
