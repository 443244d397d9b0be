"""The demo: one arm of the experiment, watched live, with a progress bar and a report at the end."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from foreshock.errors import MissingExtra

try:
    import torch
    from transformers import PrinterCallback, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
    from transformers.utils.logging import disable_progress_bar
    from trl import GRPOTrainer
except ImportError as error:
    raise MissingExtra("foreshock demo", "'foreshock[trl]'") from error

import foreshock
from foreshock.lab.experiment import Arm, Experiment, build_trainer

STEPS_PER_BLOCK = 6
"""The demo is short, so its blocks are. The false-alarm share of null runs of this length is in docs/detectors.md."""

MODELS = {"tiny": "a small tool-using agent", "smollm2": "SmolLM2-135M-Instruct with LoRA"}

INTRODUCTION = {
    "fixed": "a frozen reference and one KL weight for all tokens",
    "drift_aware": "a second KL term on post-tool tokens, driven by their tail",
    "constrained": "tool results in one fixed form, redirects resolved inside the tool",
}


def run(*, arm: Arm, seed: int, steps: int | None, model: str, run_dir: Path | None) -> None:
    """Train one arm, watch it, write the report, and print where it is."""
    warnings.filterwarnings("ignore", category=FutureWarning)
    disable_progress_bar()
    console = Console(stderr=True, quiet=int(os.environ.get("RANK", "0")) != 0)
    folder = run_dir or Path("runs") / "-".join(["demo", *(["smollm2"] if model == "smollm2" else []), arm, str(seed)])
    build, length, steps_per_block = _plan(model, arm, seed, steps, folder.parent / ".lab")
    console.print(
        f"[bold]Foreshock demo[/bold]: a real TRL GRPOTrainer trains {MODELS[model]} for {length}.\n"
        f"Arm [bold]{arm}[/bold]: {INTRODUCTION[arm]}. Seed {seed}.\n"
        "The share of tool results that redirect to another key rises on a schedule of its own (a curriculum)."
    )
    if model == "tiny":
        torch.set_num_threads(1)  # on matrices this small a second thread only waits, and one gives the same bits
    with console.status("Preparing the reference policy (half a minute the first time) …"):
        trainer = build()
    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(LiveStatus(console))
    foreshock.watch(trainer, run_dir=folder, steps_per_block=steps_per_block)
    trainer.train()
    done = f"Open [bold]{folder / 'report.html'}[/bold] in a browser, or run: foreshock diagnose {folder}"
    console.print(done, soft_wrap=True)  # a path that is broken over two lines cannot be copied


def _plan(
    model: str, arm: Arm, seed: int, steps: int | None, cache: Path
) -> tuple[Callable[[], GRPOTrainer], str, int]:
    """Return what builds the trainer, how long it trains in words, and the steps of a block."""
    if model == "smollm2":
        from foreshock.lab import smollm2

        count = steps or smollm2.STEPS
        minutes = count * smollm2.SECONDS_PER_STEP / 60
        length = f"{count} steps, about {minutes:.0f} minutes on two cores (experimental)"
        return lambda: smollm2.build_trainer(arm, seed, count, cache), length, smollm2.STEPS_PER_BLOCK
    experiment = Experiment(arm=arm, seed=seed)
    if steps is not None:
        experiment = replace(experiment, steps=steps)
    return lambda: build_trainer(experiment, cache), f"{experiment.steps} steps", STEPS_PER_BLOCK


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
