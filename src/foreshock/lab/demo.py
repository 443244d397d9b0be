"""The demo: one arm of the experiment, watched live, with a progress bar and a report at the end."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from foreshock.errors import MissingExtra

try:
    from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
except ImportError as error:
    raise MissingExtra("foreshock demo", "'foreshock[trl]'") from error

from foreshock.lab.arms import ARMS
from foreshock.lab.plan import MODELS, RunPlan
from foreshock.lab.runs import experiment_of, prepare, train
from foreshock.lab.waiting import prepare_reference


def run(*, arm: str, seed: int, steps: int | None, model: str, run_dir: Path | None) -> None:
    """Train one arm, watch it, write the report, and print where it is."""
    console = Console(stderr=True, quiet=int(os.environ.get("RANK", "0")) != 0)
    folder = run_dir or Path("runs") / "-".join(["demo", *(["smollm2"] if model == "smollm2" else []), arm, str(seed)])
    plan = RunPlan(model, arm, seed, steps or MODELS[model].steps, folder, folder.parent / ".lab")
    console.print(
        f"[bold]Foreshock demo[/bold]: a real TRL GRPOTrainer trains {MODELS[model].description} for {_length(plan)}.\n"
        f"Arm [bold]{arm}[/bold]: {ARMS[arm].description}. Seed {seed}.\n"
        "The share of tool results that redirect to another key rises on a schedule of its own (a curriculum)."
    )
    if not console.quiet:
        prepare_reference(experiment_of(plan).reference, plan.cache, console)
    trainer = prepare(plan)
    trainer.add_callback(LiveStatus(console))
    train(trainer, plan)
    done = f"Open [bold]{folder / 'report.html'}[/bold] in a browser, or run: foreshock diagnose {folder}"
    console.print(done, soft_wrap=True)  # a path that is broken over two lines cannot be copied


def _length(plan: RunPlan) -> str:
    if plan.model == "tiny":
        return f"{plan.steps} steps"
    minutes = plan.steps * MODELS[plan.model].seconds_per_step / 60
    return f"{plan.steps} steps, about {minutes:.0f} minutes on one core"


class LiveStatus(TrainerCallback):
    """A progress bar with the aggregates that people watch, and beside them the tails that Foreshock watches."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress = Progress(
            TextColumn("step"),
            MofNCompleteColumn(),
            BarColumn(bar_width=20),
            TimeRemainingColumn(),
            TextColumn("{task.description}"),
            console=console,
        )
        self._every = 25

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Start the bar."""
        self._task = self._progress.add_task("", total=state.max_steps)
        if self._console.is_terminal:
            self._progress.start()

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, logs: Any = None, **kwargs: Any
    ) -> None:
        """Show the latest values; a pipe gets one line every few steps instead of a bar."""
        if not logs or "reward" not in logs:
            return
        text = _state_line(logs)
        self._progress.update(self._task, completed=state.global_step, description=text)
        if not self._console.is_terminal and state.global_step % self._every == 0:
            self._console.print(f"step {state.global_step}/{state.max_steps}  {text}")

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Stop the bar."""
        self._progress.stop()


def _state_line(logs: dict[str, Any]) -> str:
    shown = [f"{key} {logs[key]:.2f}" for key in ("reward", "entropy", "kl") if key in logs]
    tails = {name: logs.get(f"foreshock/policy_ref/abs_p99/{name}") for name in ("text_only", "post_tool")}
    shown += [f"|r| p99 {name.replace('_', '-')} {value:.2f}" for name, value in tails.items() if value is not None]
    return "  ".join(shown)
