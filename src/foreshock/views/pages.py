"""The pages of rules in a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.markdown import Markdown
from rich.padding import Padding
from rich.text import Text

from foreshock.rules.page import Page


def render_page(page: Page) -> RenderableType:
    """Return the whole page of one rule."""
    return Markdown(page.to_markdown())


def render_index(pages: Sequence[Page]) -> RenderableType:
    """Return for each rule its severities, what it looks for, and what it needs."""
    parts: list[RenderableType] = []
    for page in pages:
        parts += [
            Text.assemble((page.id, "bold"), (f"  {', '.join(page.severities or ())}", "dim")),
            Padding(Text(page.summary), (0, 0, 0, 2)),
            Padding(Text(f"Needs {page.needs}." if page.needs else "", style="dim"), (0, 0, 0, 2)),
        ]
    return Group(*parts)
