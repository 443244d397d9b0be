"""What the watch costs a training step: pairs of runs back to back, with and without it, on the demo's trainer.

    python benchmarks/overhead.py [--pairs 5] [--steps 40]

Both runs of a pair have the same seed, so they train the same policy on the same data to the bit. The order within a
pair alternates. Printed and written to benchmarks/results.md: the median step times and the median of the paired ratios.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
import warnings
from pathlib import Path

import torch
from results import write_section
from transformers import PrinterCallback, TrainerCallback

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


def run(folder: Path, seed: int, steps: int, watched: bool) -> tuple[list[float], float]:
    trainer = build_trainer(Experiment(seed=seed, steps=steps), folder)
    trainer.remove_callback(PrinterCallback)
    times = StepTimes()
    trainer.add_callback(times)
    if watched:
        foreshock.watch(trainer, run_dir=folder / f"run-{seed}", steps_per_block=5, write_report=False)
    trainer.train()
    return times.times, float(next(trainer.model.parameters()).double().sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    warnings.filterwarnings("ignore")
    plain, watched, ratios = [], [], []
    with tempfile.TemporaryDirectory() as name:
        for pair in range(options.pairs):
            found = {}
            for on in (False, True) if pair % 2 == 0 else (True, False):
                found[on] = run(Path(name), pair, options.steps, on)
            assert found[True][1] == found[False][1], "the watch changed what was trained"
            # Step by step: both runs of a pair do the same work in the same step.
            ratios += [with_ / without for with_, without in zip(found[True][0], found[False][0], strict=True)]
            plain += found[False][0]
            watched += found[True][0]
            print(f"pair {pair + 1}/{options.pairs}: median ratio so far {statistics.median(ratios):.4f}", flush=True)
    low, middle, high = statistics.quantiles(ratios, n=4)
    lines = [
        f"{options.pairs} pairs of {options.steps} steps, {options.threads} thread(s), the demo's trainer. "
        "Both runs of a pair train the same weights to the bit.",
        "",
        "| | median step, s |",
        "|---|---|",
        f"| without watch | {statistics.median(plain):.4f} |",
        f"| with watch | {statistics.median(watched):.4f} |",
        "",
        f"Median of the step-by-step ratios **{middle:.4f}** (quartiles {low:.4f} to {high:.4f}).",
    ]
    print("\n".join(lines))
    write_section("overhead", "Cost of the watch on a training step", "\n".join(lines))


if __name__ == "__main__":
    main()
