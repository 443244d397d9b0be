"""results.md: one section a benchmark, each rewritten by its own run and by no other."""

from __future__ import annotations

import re
from pathlib import Path

RESULTS = Path(__file__).with_name("results.md")


def write_section(name: str, title: str, text: str, path: Path = RESULTS) -> None:
    """Replace the section between this benchmark's two markers, or append it."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    section = f"{begin}\n## {title}\n\n{text.strip()}\n{end}"
    content = path.read_text() if path.exists() else "# Benchmark results\n"
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    content = (
        pattern.sub(lambda _: section, content) if pattern.search(content) else f"{content.rstrip()}\n\n{section}\n"
    )
    path.write_text(content)
