"""``foreshock explain``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from foreshock.cli.shared import RULES, errors_shown, print_document


@click.command()
@click.argument("rule")
@RULES
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
def explain(rule: str, rules: tuple[Path, ...], as_json: bool) -> None:
    """Show the page of a rule, or of a check of audits or traces.

    What it looks for, why that matters, where it errs, an example, and references.
    """
    with errors_shown():
        from foreshock import audit
        from foreshock.plugins import find_rule, load_rules
        from foreshock.rules.page import page_of
        from foreshock.traces.checks import described

        known: list[Any] = [*load_rules(rules), *audit.CHECKS, *described.CHECKS]
        page = page_of(find_rule(known, rule))
        if as_json:
            print_document({"schema": 1, "rule": page.to_dict()})
        else:
            from rich.console import Console

            from foreshock.views import pages as view

            Console().print(view.render_page(page))
