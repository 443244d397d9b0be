"""Write docs/rules: one page a built-in rule, from its docstring, and an index.

python docs/generate.py
"""

from pathlib import Path

from foreshock.rules import BUILT_IN
from foreshock.rules.page import index_of, page_of

FOLDER = Path(__file__).parent / "rules"

INDEX = """# Rules

One page a rule, made of its docstring by `python docs/generate.py`. In a terminal, `foreshock explain RULE` shows the
same. How to write a rule of your own: [plug-ins](../plugins.md).

{table}"""


def pages() -> dict[str, str]:
    """File name → text of every page."""
    found = [page_of(rule) for rule in BUILT_IN]
    index = {"README.md": INDEX.format(table=index_of(found))}
    return index | {f"{page.id}.md": page.to_markdown() for page in found}


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
