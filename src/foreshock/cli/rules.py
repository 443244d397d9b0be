"""``foreshock rules``."""

from __future__ import annotations

from pathlib import Path

import click

from foreshock.cli.shared import RULES, errors_shown, print_document


@click.command("rules")
@RULES
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
def list_rules(rules: tuple[Path, ...], as_json: bool) -> None:
    """List every rule, and the checks of audits and traces.

    Each with its severities, one line, and what it needs; rules of installed packages and of --rules too.
    """
    with errors_shown():
        from foreshock import audit
        from foreshock.plugins import load_rules
        from foreshock.rules.page import page_of
        from foreshock.traces.checks import described

        groups = {"rules": load_rules(rules), "audit": audit.CHECKS, "traces": described.CHECKS}
        pages = {name: [page_of(rule) for rule in group] for name, group in groups.items()}
        if as_json:
            print_document({"schema": 1} | {name: [page.to_dict() for page in group] for name, group in pages.items()})
        else:
            from rich.console import Console

            from foreshock.views import pages as view

            Console().print(view.render_index(pages))
