"""What a long run costs the process that trains: the memory of what it keeps, and the seconds of a pass of all rules.

A run as a live monitor holds it is given 30 logged keys at every step and a block of two slices every ten steps. The
blocks are one of 20 over and over, and stand in a run directory. A pass is timed after one new block, in processor
seconds; memory is what the process has gained since it was ready.

    python benchmarks/long_run.py            # 10⁶ steps, about three minutes on one core; rewrites its section
    python benchmarks/long_run.py --quick    # 10⁵ steps, prints only
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from results import write_section
from series_runs import LEVELS

from foreshock.batch import PAIRS
from foreshock.diagnosis import diagnose_run
from foreshock.run import Block, EncodedSketches, Run, RunWriter, StoredBlocks, prepare_directory
from foreshock.sketch import LogRatioSketch

KEYS = {**LEVELS, **{f"rewards/part_{number}/mean": (0.5, 0.1) for number in range(30 - len(LEVELS))}}
STEPS_PER_BLOCK = 10
TOKENS = 1_500


def made_block(seed: int) -> Block:
    g = np.random.default_rng(seed)
    sketch = LogRatioSketch()
    sketch.update(0.1 * g.standard_t(3, (2, TOKENS)), np.array([[0], [1]]).repeat(TOKENS, 1))
    counters = {"rows": (8.0,) * STEPS_PER_BLOCK, "response_tokens": (300.0,) * STEPS_PER_BLOCK}
    counters |= dict.fromkeys(("errors", "nonfinite/policy", "nonfinite/ref"), (0.0,) * STEPS_PER_BLOCK)
    return Block(seed, 1, STEPS_PER_BLOCK, EncodedSketches.of({PAIRS[0]: sketch}), 1, counters)


def resident() -> float:
    """Memory of this process that is in use, in MB (Linux)."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


class LongRun:
    """A run that grows; every value of a key is drawn from the same 1,000."""

    def __init__(self, writer: RunWriter) -> None:
        g = np.random.default_rng(0)
        self.run = Run(bounded=True, blocks=StoredBlocks(), identity={"watch": {"max_steps": 10**6}})
        self._writer = writer
        self._blocks = [made_block(seed) for seed in range(20)]
        self._rows = [{key: mean + sd * g.normal() for key, (mean, sd) in KEYS.items()} for _ in range(1_000)]
        self._draws = g
        self.step = 0

    def grow(self, steps: int) -> None:
        for number in self._draws.integers(len(self._rows), size=steps):
            self.step += 1
            self.run.append_scalars(self.step, self._rows[number])
            if self.step % STEPS_PER_BLOCK == 0:
                index = self.step // STEPS_PER_BLOCK - 1
                first = self.step - STEPS_PER_BLOCK + 1
                block = replace(
                    self._blocks[number % 20], index=index, first_step=first, last_step=self.step, derived={}
                )
                self.run.blocks.append(self._writer.write_block(block))

    def seconds_of_a_pass(self) -> float:
        diagnose_run(self.run)
        self.grow(STEPS_PER_BLOCK)
        begin = time.process_time()
        diagnose_run(self.run)
        return time.process_time() - begin


def measure(checkpoints: list[int], folder: Path) -> str:
    writer = RunWriter(prepare_directory(folder), start_step=0, identity={}, notices={})
    growing = LongRun(writer)
    diagnose_run(growing.run)
    before = resident()
    lines = [
        f"{len(KEYS)} keys at every step, a block every {STEPS_PER_BLOCK} steps:",
        "",
        "| steps | blocks | memory gained (MB) | rows of a key in memory | a pass of all rules (ms) | verdict |",
        "|---:|---:|---:|---:|---:|---|",
    ]
    for steps in checkpoints:
        growing.grow(steps - growing.step - STEPS_PER_BLOCK)
        seconds = growing.seconds_of_a_pass()
        rows = len(growing.run.series["loss"])
        lines.append(
            f"| {growing.step:,} | {len(growing.run.blocks):,} | {resident() - before:.0f} | {rows:,} | "
            f"{1000 * seconds:.0f} | {diagnose_run(growing.run).verdict} |"
        )
        print(lines[-1], flush=True)
    writer.close()
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="10⁵ steps, prints only")
    quick = parser.parse_args().quick
    checkpoints = [1_000, 10_000, 30_000, 100_000] + ([] if quick else [300_000, 1_000_000])
    with tempfile.TemporaryDirectory() as folder:
        text = measure(checkpoints, Path(folder) / "run")
    print(text)
    if not quick:
        write_section("long_run", "A long run in the process that trains", text)


if __name__ == "__main__":
    main()
