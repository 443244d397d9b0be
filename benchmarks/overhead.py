"""What the watch costs a training step: pairs of runs back to back, with and without it, on the demo's trainer.

    python benchmarks/overhead.py [--pairs 5] [--steps 40]

Both runs of a pair have the same seed, so they train the same policy on the same data to the bit; that is checked.
The order within a pair alternates. Two cases: the trainer has a reference of its own (the demo), and it has none
(beta = 0), so that a share of the rows is scored under ``ref_model=``. Written to benchmarks/results.md.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
import warnings
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

import torch
from results import write_section
from transformers import TrainerCallback

import foreshock
from foreshock.lab.experiment import Experiment, build_trainer

SKIPPED_STEPS = 3


class StepTimes(TrainerCallback):
    def __init__(self):
        self.times = []

    def on_step_begin(self, args, state, control, **kwargs):
        now = time.perf_counter()
        if state.global_step > SKIPPED_STEPS:
            self.times.append(now - self._last)
        self._last = now


@dataclass(frozen=True)
class Case:
    title: str
    beta: float
    probed: bool


CASES = (
    Case("beta > 0: the trainer computes the reference", beta=0.04, probed=False),
    Case("beta = 0: one row in twenty is scored under ref_model", beta=0.0, probed=True),
)


def run(case: Case, folder: Path, seed: int, steps: int, watched: bool) -> tuple[list[float], float]:
    trainer = build_trainer(Experiment(seed=seed, steps=steps, beta=case.beta), folder)
    times = StepTimes()
    trainer.add_callback(times)
    if watched:
        options = {"ref_model": deepcopy(trainer.model)} if case.probed else {}
        run_dir = folder / f"run-{case.probed}-{seed}"
        foreshock.watch(trainer, run_dir=run_dir, steps_per_block=6, write_report=False, **options)
    trainer.train()
    return times.times, float(next(trainer.model.parameters()).double().sum())


def compare(case: Case, folder: Path, pairs: int, steps: int) -> str:
    """Return one row of the table: median step times, and the median of the step-by-step ratios with its quartiles."""
    plain, watched, ratios = [], [], []
    for pair in range(pairs):
        found = {on: run(case, folder, pair, steps, on) for on in ((False, True) if pair % 2 == 0 else (True, False))}
        assert found[True][1] == found[False][1], "the watch changed what was trained"
        # Step by step: both runs of a pair do the same work in the same step.
        ratios += [with_ / without for with_, without in zip(found[True][0], found[False][0], strict=True)]
        plain += found[False][0]
        watched += found[True][0]
        print(f"{case.title}: pair {pair + 1}/{pairs}, median ratio so far {statistics.median(ratios):.4f}", flush=True)
    low, middle, high = statistics.quantiles(ratios, n=4)
    times = f"{statistics.median(plain):.4f} | {statistics.median(watched):.4f}"
    return f"| {case.title} | {times} | **{middle:.4f}** | {low:.4f}–{high:.4f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=40)
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    with tempfile.TemporaryDirectory() as name:
        rows = [compare(case, Path(name), options.pairs, options.steps) for case in CASES]
    lines = [
        f"{options.pairs} pairs of {options.steps} steps on one thread, the demo's trainer. Both runs of a pair "
        "train the same weights to the bit.",
        "",
        "| case | step without, s | step with, s | ratio, median | quartiles |",
        "|---|---|---|---|---|",
        *rows,
    ]
    print("\n".join(lines))
    write_section("overhead", "Cost of the watch on a training step", "\n".join(lines))


if __name__ == "__main__":
    main()
