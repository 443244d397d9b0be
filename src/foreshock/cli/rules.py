"""``foreshock rules``."""

from __future__ import annotations

from pathlib import Path

import click

from foreshock.cli.shared import RULES, errors_shown, print_document


@click.command("rules")
@RULES
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
def list_rules(rules: tuple[Path, ...], as_json: bool) -> None:
    """List every rule.

    Its severities, what it needs, and one line; those of installed packages and of --rules too.
    """
    with errors_shown():
        from foreshock.plugins import load_rules
        from foreshock.rules.page import page_of

        pages = [page_of(rule) for rule in load_rules(rules)]
        if as_json:
            print_document({"schema": 1, "rules": [page.to_dict() for page in pages]})
        else:
            from rich.console import Console

            from foreshock.views import pages as view

            Console().print(view.render_index(pages))
