"""The reproduction: a sweep of arms and seeds, then figures, tables and one page from the run directories."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console
from rich.table import Table

from foreshock.errors import MissingExtra, RunFailed
from foreshock.lab import sweep
from foreshock.lab.plan import MODELS, RunPlan


def run(
    *, arms: Sequence[str], seeds: Sequence[int], steps: int | None, jobs: int | None, model: str, output: Path
) -> None:
    """Train what is missing of a sweep, draw what it shows, and print the checks.

    Raises:
        InputError: an arm is unknown, or the output folder holds runs of another length.
        MissingExtra: TRL or matplotlib is not installed.
        RunFailed: runs ended with an error; what finished is drawn all the same.
    """
    if find_spec("trl") is None or find_spec("matplotlib") is None:
        raise MissingExtra("foreshock reproduce", "'foreshock[trl,figures]'")
    console = Console(stderr=True)
    planned = sweep.plans(model, arms, seeds, steps, output)
    due = [plan for plan in planned if not sweep.is_finished(plan)]
    jobs = jobs or (sweep.cores() if model == "tiny" else 1)
    console.print(
        f"[bold]{len(planned)} runs[/bold] of {MODELS[model].description}, {planned[0].steps} steps each; "
        f"{len(planned) - len(due)} have finished, {len(due)} to train, {jobs} at a time: about "
        f"{sweep.estimate_minutes(due, jobs):.0f} minutes."
    )
    failed = _train(due, jobs, console) if due else []
    finished = [plan for plan in planned if sweep.is_finished(plan)]
    if finished:
        _show(finished, output, console)
    if failed:
        logs = ", ".join(map(str, failed))
        raise RunFailed(f"{len(failed)} of {len(due)} runs ended with an error: see {logs}. Start again to retry them.")


def _train(due: Sequence[RunPlan], jobs: int, console: Console) -> list[Path]:
    from foreshock.lab.runs import experiment_of
    from foreshock.lab.waiting import prepare_reference

    prepare_reference(experiment_of(due[0]).reference, due[0].cache, console)
    return sweep.run_all(due, jobs, console)


def _show(finished: Sequence[RunPlan], output: Path, console: Console) -> None:
    from foreshock.lab import curves, draw, page, results, tables

    read = results.read_results(finished)
    figures = curves.figures(read)
    for figure in figures:
        draw.save(figure, output)
    target = page.write(read, figures, output)
    checks = tables.check_rows(read)
    table = Table(*(checks[0] if checks else ()), box=None, pad_edge=False)
    for row in checks:
        table.add_row(*row.values())
    Console().print(table)
    console.print(f"Open [bold]{target}[/bold] in a browser; figures and tables lie beside it.", soft_wrap=True)
