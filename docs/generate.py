"""Write docs/rules: one page a built-in rule or check, from its docstring, and an index.

python docs/generate.py
"""

from pathlib import Path

from foreshock import audit
from foreshock.rules import BUILT_IN
from foreshock.rules.page import index_of, page_of
from foreshock.traces.checks import described

FOLDER = Path(__file__).parent / "rules"

INDEX = """# Rules

One page a rule, made of its docstring by `python docs/generate.py`. In a terminal, `foreshock explain RULE` shows the
same, and `foreshock rules` lists them. [Rules of your own](../plugins.md) count with the others.

{rules}
## Checks of `foreshock audit`

Of [rollouts](../audit.md); `non-finite-values` above is asked as well.

{audit}
## Checks of traces

Of [what an agent said and did](../traces.md).

{traces}"""

GROUPS = {"rules": BUILT_IN, "audit": audit.CHECKS, "traces": described.CHECKS}


def pages() -> dict[str, str]:
    """File name → text of every page."""
    found = {name: [page_of(rule) for rule in group] for name, group in GROUPS.items()}
    index = {"README.md": INDEX.format(**{name: index_of(group) for name, group in found.items()})}
    return index | {f"{page.id}.md": page.to_markdown() for group in found.values() for page in group}


def main() -> None:
    """Write all pages, and remove those of rules that are gone."""
    FOLDER.mkdir(exist_ok=True)
    written = pages()
    for old in FOLDER.glob("*.md"):
        if old.name not in written:
            old.unlink()
    for name, text in written.items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
