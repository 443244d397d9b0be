"""What the commands share: exit codes, how errors and JSON are shown."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, NoReturn

import click

OK, FINDINGS, UNREADABLE, CANNOT_JUDGE = 0, 1, 2, 3

EXIT_CODES = """
\b
Exit codes:
  0  nothing at or above the level of --fail-on
  1  findings at or above it
  2  unreadable input or wrong use
  3  cannot judge
"""

RULES = click.option(
    "--rules",
    multiple=True,
    type=click.Path(path_type=Path),
    help="File of further rules, .toml or .py; repeatable.",
)

RUN = click.argument("run", type=click.Path(path_type=Path))


def print_document(content: dict[str, Any]) -> None:
    """Print one JSON document to stdout."""
    import msgspec

    click.echo(msgspec.json.format(msgspec.json.encode(content), indent=2))


class errors_shown:
    """Show an error of Foreshock's own or of the file system as one line, and leave with the code for wrong use."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        from foreshock.errors import ForeshockError

        if isinstance(error, (ForeshockError, OSError)):
            _fail(str(error))


def _fail(message: str) -> NoReturn:
    click.secho(f"Error: {message}", err=True, fg="red")
    sys.exit(UNREADABLE)
