"""Many runs, each in a process of its own: which are due, how far they are, and what became of them.

A run that has finished is kept. A half-finished one goes on from its checkpoint where its model keeps any, and starts
again otherwise.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from foreshock.errors import InputError
from foreshock.lab.plan import MODELS, RunPlan
from foreshock.run import read_run_directory
from foreshock.run.directory import METRICS, RUN

SECONDS_BETWEEN_LOOKS = 1.0


def plans(model: str, arms: Sequence[str], seeds: Sequence[int], steps: int | None, output: Path) -> list[RunPlan]:
    """Return the runs of a sweep, seed by seed, so that a sweep that is stopped early has every arm."""
    length = steps or MODELS[model].steps
    return [
        RunPlan(model, arm, seed, length, output / "runs" / f"{arm}-{seed}", output / ".lab")
        for seed in seeds
        for arm in arms
    ]


def is_finished(plan: RunPlan) -> bool:
    """Say whether the run directory of a plan holds the whole run.

    Raises:
        InputError: it holds a run of another length.
    """
    if not (plan.run_dir / RUN).is_file():
        return False
    run = read_run_directory(plan.run_dir)
    if run.planned_steps not in (None, plan.steps):
        raise InputError(
            f"{plan.run_dir} holds a run of {run.planned_steps} steps, and {plan.steps} were asked for. Pass another "
            "--output, or the same --steps."
        )
    return run.identity.get("status") == "finished"


def estimate_minutes(due: Sequence[RunPlan], jobs: int) -> float:
    """Return about how long runs take with so many at a time, in minutes, by the measured time of a step."""
    seconds = sum(plan.steps * MODELS[plan.model].seconds_per_step for plan in due)
    return seconds / min(jobs, max(1, len(due))) / 60


def run_all(due: Sequence[RunPlan], jobs: int, console: Console) -> list[Path]:
    """Train runs, at most ``jobs`` at a time, and show progress with the time left.

    Returns the logs of those that ended with an error; the others are finished all the same.
    """
    waiting, active, failed = list(due), list[_Process](), list[_Process]()
    with _Watcher(due, console) as watcher:
        try:
            while waiting or active:
                while waiting and len(active) < jobs:
                    active.append(_Process.start(waiting.pop(0), jobs))
                time.sleep(SECONDS_BETWEEN_LOOKS)
                for process in [process for process in active if process.ended]:
                    active.remove(process)
                    failed += [process] if process.code else []
                    watcher.say_ended(process, [process.plan for process in active])
                watcher.show([process.plan for process in active])
        finally:
            for process in active:
                process.stop()
    return [process.log for process in failed]


@dataclass
class _Process:
    plan: RunPlan
    log: Path
    process: subprocess.Popen[bytes]

    @classmethod
    def start(cls, plan: RunPlan, jobs: int) -> _Process:
        if not MODELS[plan.model].resumes:
            shutil.rmtree(plan.run_dir, ignore_errors=True)
        log = plan.run_dir.parent.parent / "logs" / f"{plan.name}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, "OMP_NUM_THREADS": str(max(1, cores() // jobs))}
        arguments = (plan.model, plan.arm, plan.seed, plan.steps, plan.run_dir, plan.cache)
        command = [sys.executable, "-m", "foreshock.lab.runs", *map(str, arguments)]
        with open(log, "ab") as file:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=environment)
        return cls(plan, log, process)

    @property
    def ended(self) -> bool:
        return self.process.poll() is not None

    @property
    def code(self) -> int:
        return int(self.process.returncode)

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()


class _Watcher:
    """Shows how far the runs are: a bar on a terminal, a line for each run that ends elsewhere."""

    def __init__(self, due: Sequence[RunPlan], console: Console) -> None:
        self._due = due
        self._console = console
        self._ended: list[RunPlan] = []
        self._started = time.monotonic()
        self._progress = Progress(
            TextColumn("{task.description}"), BarColumn(bar_width=30), TextColumn("{task.percentage:.0f} %"),
            TimeRemainingColumn(), console=console, disable=not console.is_terminal,
        )  # fmt: skip
        self._total = sum(plan.steps for plan in due)
        self._task: TaskID = self._progress.add_task("starting", total=self._total)

    def __enter__(self) -> _Watcher:
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def show(self, active: Sequence[RunPlan]) -> None:
        done = sum(map(_steps_done, [*self._ended, *active]))
        names = ", ".join(plan.name for plan in active)
        self._progress.update(self._task, completed=done, description=f"{names}  {self._count}")

    def say_ended(self, process: _Process, active: Sequence[RunPlan]) -> None:
        self._ended.append(process.plan)
        done = max(1, sum(map(_steps_done, [*self._ended, *active])))
        left = (time.monotonic() - self._started) * max(0, self._total / done - 1) / 60
        outcome = f"failed, see {process.log}" if process.code else "finished"
        self._console.print(f"{process.plan.name} {outcome}  {self._count}, about {left:.0f} minutes left")

    @property
    def _count(self) -> str:
        return f"({len(self._ended)} of {len(self._due)} runs)"


def _steps_done(plan: RunPlan) -> int:
    """Count the logged steps of a run by its lines, without reading them."""
    try:
        return (plan.run_dir / METRICS).read_bytes().count(b"\n")
    except FileNotFoundError:
        return 0


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
