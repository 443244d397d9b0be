"""``foreshock audit``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from foreshock.cli.shared import AS_JSON, EXIT_CODES, FAIL_ON, errors_shown, exit_code, print_document


@click.command(epilog=EXIT_CODES)
@click.argument("rollouts", type=click.Path(path_type=Path))
@AS_JSON
@FAIL_ON
def audit(rollouts: Path, as_json: bool, fail_on: str) -> None:
    """Check that what is trained is what the policy did.

    Of a token dump: masks, placeholders, re-tokenisation, forced tokens, groups. Of completions: roles, groups.
    """
    with errors_shown():
        from foreshock.diagnosis import audit_rollouts

        diagnosis = audit_rollouts(rollouts)
        if as_json:
            print_document({"schema": 1, "runs": [diagnosis.to_dict()], "unreadable": []})
        else:
            from rich.console import Console

            from foreshock.views import terminal

            Console().print(terminal.render_diagnosis(diagnosis))
        sys.exit(exit_code([diagnosis], fail_on))
