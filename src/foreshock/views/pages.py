"""The pages of rules in a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.markdown import Markdown
from rich.padding import Padding
from rich.text import Text

from foreshock.rules.page import Page


def render_page(page: Page) -> RenderableType:
    """Return the whole page of one rule."""
    return Markdown(page.to_markdown())


HEADINGS = {"rules": "Rules of runs", "audit": "Checks of foreshock audit", "traces": "Checks of traces"}


def render_index(groups: Mapping[str, Sequence[Page]]) -> RenderableType:
    """Return under each heading, for each rule, its severities, what it looks for, and what it needs."""
    parts: list[RenderableType] = []
    for name, pages in groups.items():
        parts += [Text(HEADINGS[name], style="bold underline"), Text()]
        for page in pages:
            parts += _entry(page)
        parts.append(Text())
    return Group(*parts, Text("foreshock explain NAME shows the whole page of one."))


def _entry(page: Page) -> list[RenderableType]:
    lines: list[RenderableType] = [
        Text.assemble((page.id, "bold"), (f"  {', '.join(page.severities or ())}", "dim")),
        Padding(Text(page.summary), (0, 0, 0, 2)),
    ]
    return [*lines, Padding(Text(f"Needs {page.needs}.", style="dim"), (0, 0, 0, 2))] if page.needs else lines
