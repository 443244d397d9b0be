"""``foreshock explain``."""

from __future__ import annotations

from pathlib import Path

import click

from foreshock.cli.shared import RULES, errors_shown, print_document


@click.command()
@click.argument("rule")
@RULES
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
def explain(rule: str, rules: tuple[Path, ...], as_json: bool) -> None:
    """Show the page of a rule, or of a check of the audit.

    What it looks for, why that matters, where it errs, an example, and references.
    """
    with errors_shown():
        from foreshock.audit import CHECKS
        from foreshock.plugins import find_rule, load_rules
        from foreshock.rules.page import page_of

        audited = {check.ID: check for check in CHECKS}
        page = page_of(audited[rule] if rule in audited else find_rule(load_rules(rules), rule))
        if as_json:
            print_document({"schema": 1, "rule": page.to_dict()})
        else:
            from rich.console import Console

            from foreshock.views import pages as view

            Console().print(view.render_page(page))
