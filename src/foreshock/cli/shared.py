"""What the commands share: exit codes, how errors and JSON are shown."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

if TYPE_CHECKING:
    from foreshock.diagnosis import Diagnosis
    from foreshock.run import Run

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
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
FAIL_ON = click.option(
    "--fail-on",
    type=click.Choice(["warning", "critical"]),
    default="warning",
    show_default=True,
    help="Lowest severity that gives exit code 1.",
)


def exit_code(found: Sequence[Diagnosis], fail_on: str, is_incomplete: bool = False) -> int:
    """Return the exit code for what was found at or above a severity; something more may be unreadable."""
    from foreshock.rules.finding import SEVERITIES

    level = SEVERITIES.index(fail_on)
    if any(SEVERITIES.index(finding.severity) >= level for diagnosis in found for finding in diagnosis.findings):
        return FINDINGS
    if is_incomplete:
        return UNREADABLE
    return CANNOT_JUDGE if any(diagnosis.verdict == "cannot_judge" for diagnosis in found) else OK


def print_document(content: dict[str, Any]) -> None:
    """Print one JSON document to stdout."""
    import msgspec

    click.echo(msgspec.json.format(msgspec.json.encode(content), indent=2))


def open_one_run(path: Path) -> Run:
    """Read a run, for commands that cannot use traces.

    Raises:
        ReadError: nothing there can be read as a run, or it holds traces.
    """
    from foreshock.errors import ReadError
    from foreshock.sources import open_run
    from foreshock.traces import is_traces

    if is_traces(path):
        raise ReadError(f"{str(path)!r} holds traces of an agent, not a run. Use: foreshock diagnose {path}")
    return open_run(path)


def check_exists(path: Path, expected: str) -> None:
    """Raise a ReadError that says what to pass where there is nothing at a path."""
    from foreshock.errors import ReadError

    if not path.exists():
        raise ReadError(f"{str(path)!r} does not exist. Pass {expected}.")


class errors_shown:
    """Show an error of Foreshock's own or of the file system as one line, and leave with the code for wrong use."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        from foreshock.errors import ForeshockError

        if isinstance(error, (ForeshockError, OSError)):
            _fail(str(error))


def _fail(message: str) -> NoReturn:
    colour = None if os.environ.get("NO_COLOR") else "red"
    click.secho(f"Error: {message}", err=True, fg=colour)
    sys.exit(UNREADABLE)
