"""The command line. Every command imports what it needs when it runs, so that ``foreshock --help`` stays fast."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, cast

import click

import foreshock

if TYPE_CHECKING:
    from foreshock.diagnosis import Diagnosis
    from foreshock.lab.experiment import Arm

OK, FINDINGS, UNREADABLE, CANNOT_JUDGE = 0, 1, 2, 3

EXIT_CODES = """
\b
Exit codes:
  0  nothing at or above the level of --fail-on
  1  findings at or above it
  2  unreadable input or wrong use
  3  cannot judge
"""

RUN = click.argument("run", type=click.Path(path_type=Path))


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(foreshock.__version__, prog_name="foreshock", message="%(prog)s %(version)s")
def main() -> None:
    """Early warning for agent RL: watches the tail of per-token log-ratios where tool-using agents break first."""


@main.command()
@click.option(
    "--arm",
    type=click.Choice(["fixed", "drift_aware", "constrained"]),
    default="fixed",
    show_default=True,
    help="How the policy is held to its reference, or the tool to its form.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="The same seed gives the same run.")
@click.option(
    "--steps", type=click.IntRange(min=1), default=None, help="Optimizer steps; by default what fits in five minutes."
)
@click.option(
    "--model",
    type=click.Choice(["tiny", "smollm2"]),
    default="tiny",
    show_default=True,
    help="smollm2 is experimental and slow.",
)
@click.option(
    "--run-dir",
    type=click.Path(path_type=Path),
    default=None,
    help="Where to write the run; runs/demo-ARM-SEED by default.",
)
def demo(arm: str, seed: int, steps: int | None, model: str, run_dir: Path | None) -> None:
    """Train a small tool-using agent and watch its tail.

    A real TRL run: the post-tool tail grows while everything else looks fine. With --arm constrained it does not.
    """
    with _errors_shown():
        from foreshock.lab import demo as lab_demo

        lab_demo.run(arm=cast("Arm", arm), seed=seed, steps=steps, model=model, run_dir=run_dir)


@main.command(epilog=EXIT_CODES)
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
@click.option(
    "--fail-on",
    type=click.Choice(["warning", "critical"]),
    default="warning",
    show_default=True,
    help="Lowest severity that gives exit code 1.",
)
def diagnose(runs: tuple[Path, ...], as_json: bool, fail_on: str) -> None:
    """Say what is wrong with runs.

    And how sure that is, what it excludes, what to try, and which check would tell more.
    """
    with _errors_shown():
        from foreshock.diagnosis import diagnose as diagnose_path

        found = [diagnose_path(path) for path in runs]
        if as_json:
            _print_json(found)
        else:
            from rich.console import Console

            from foreshock.views import terminal

            console = Console()
            for diagnosis in found:
                console.print(terminal.render_diagnosis(diagnosis))
        sys.exit(_exit_code(found, fail_on))


@main.command()
@RUN
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    default=None,
    help="Folder for report.html; the run's own by default.",
)
def report(run: Path, output: Path | None) -> None:
    """Write report.html, one offline file with every figure."""
    with _errors_shown():
        from foreshock.diagnosis import diagnose_run
        from foreshock.sources import open_run
        from foreshock.views.report import write_report

        opened = open_run(run)
        folder = output or (run if run.is_dir() else run.parent)
        folder.mkdir(parents=True, exist_ok=True)
        click.echo(write_report(folder, opened, diagnose_run(opened)))


@main.command()
@RUN
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
def inspect(run: Path, as_json: bool) -> None:
    """Show what can be read of a run or a log.

    Its format, rows, steps and keys, and what was skipped and why.
    """
    with _errors_shown():
        from foreshock.sources import describe, open_run

        described = describe(open_run(run))
        if as_json:
            _print_document(described)
        else:
            from rich.console import Console

            from foreshock.views import terminal

            Console().print(terminal.render_description(described))


@main.command()
@RUN
@click.option(
    "--interval", type=click.FloatRange(min=0.2), default=5.0, show_default=True, help="Seconds between two looks."
)
@click.option("--once", is_flag=True, help="Print the state once and end.")
def watch(run: Path, interval: float, once: bool) -> None:
    """Follow a run that another process is training."""
    with _errors_shown():
        from foreshock.views import status

        status.follow(run, interval=interval, once=once)


def _print_json(found: list[Diagnosis]) -> None:
    _print_document({"schema": 1, "runs": [diagnosis.to_dict() for diagnosis in found]})


def _print_document(content: dict[str, Any]) -> None:
    import msgspec

    click.echo(msgspec.json.format(msgspec.json.encode(content), indent=2))


def _exit_code(found: list[Diagnosis], fail_on: str) -> int:
    from foreshock.rules.finding import SEVERITIES

    level = SEVERITIES.index(fail_on)
    if any(SEVERITIES.index(finding.severity) >= level for diagnosis in found for finding in diagnosis.findings):
        return FINDINGS
    return CANNOT_JUDGE if any(diagnosis.verdict == "cannot_judge" for diagnosis in found) else OK


class _errors_shown:
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
