"""The page of a rule, from its docstring: for docs/rules, ``foreshock explain`` and ``foreshock rules``."""

from __future__ import annotations

import inspect
import re
import textwrap
from dataclasses import asdict, dataclass
from typing import Any

SECTIONS = ("What", "Why it matters", "Known problems", "Example", "Options", "References")

WIDTH = 120

_HEADINGS = re.compile(rf"^({'|'.join(SECTIONS)}):\s+", re.MULTILINE)
_ROLE = re.compile(r":[a-z]+:`~?\.?([^`]+)`")


@dataclass(frozen=True, slots=True)
class Page:
    """What is written of a rule. ``sections``: heading → text, as far as the docstring has them.

    ``summary``: the first line of the docstring. ``severities`` (None: not stated) and ``needs`` are those of the rule.
    """

    id: str
    summary: str
    severities: tuple[str, ...] | None
    needs: str
    sections: dict[str, str]

    def to_dict(self) -> dict[str, Any]:
        """Return the page as plain values, ready for JSON."""
        return asdict(self)

    def to_markdown(self) -> str:
        """Return the page as Markdown."""
        facts = [f"**Severity:** {_severities(self)}"]
        facts += [f"**Needs:** {self.needs}"] if self.needs else []
        parts = [f"# {self.id}", self.summary, "  \n".join(facts)]
        for heading, text in self.sections.items():
            parts += [f"## {heading}" if heading else "", text]
        return "\n\n".join(filter(None, parts)) + "\n"


def page_of(rule: Any) -> Page:
    """Return the page of a rule; what a user's rule says before the first section stands without a heading."""
    summary, _, body = _plain(inspect.getdoc(rule) or "").partition("\n\n")
    before, *parts = _HEADINGS.split(body)
    sections = {"": before, **dict(zip(parts[::2], parts[1::2], strict=True))}
    return Page(
        id=rule.ID,
        summary=_filled(summary),
        severities=getattr(rule, "SEVERITIES", None),
        needs=getattr(rule, "NEEDS", ""),
        sections={heading: _filled(text) for heading, text in sections.items() if text.strip()},
    )


def index_of(pages: list[Page]) -> str:
    """Return the table of all pages as Markdown, each with a link."""
    rows = [
        f"| [{page.id}]({page.id}.md) | {_severities(page)} | {_cell(page.needs)} | {_cell(page.summary)} |"
        for page in pages
    ]
    return "\n".join(("| rule | severity | needs | what |", "|---|---|---|---|", *rows)) + "\n"


def _severities(page: Page) -> str:
    if page.severities is None:
        return "not stated"
    return ", ".join(page.severities) or "none, says only what cannot be judged"


def _plain(text: str) -> str:
    """Turn the markup of docstrings into that of Markdown."""
    return _ROLE.sub(r"`\1`", text).replace("``", "`")


def _filled(text: str) -> str:
    text = text.strip()
    paragraphs = (" ".join(paragraph.split()) for paragraph in _capital(text).split("\n\n"))
    return "\n\n".join(
        textwrap.fill(paragraph, WIDTH, break_long_words=False, break_on_hyphens=False) for paragraph in paragraphs
    )


def _capital(text: str) -> str:
    """Begin with a capital letter, unless it begins with the name of a key or an address."""
    first = text.partition(" ")[0]
    return text if "/" in first or "_" in first else text[:1].upper() + text[1:]


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
