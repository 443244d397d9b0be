"""The state of a run directory that a training process is writing, for another terminal."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from foreshock.batch import POST_TOOL, TEXT_ONLY
from foreshock.diagnosis import diagnose_run
from foreshock.plugins import Rule
from foreshock.run import Block, Run, RunReader, read_run_directory
from foreshock.views.terminal import render_short

SHOWN_BLOCKS = 6
NARROW = 90
"""Columns of the terminal below which only the tails are shown."""

AGGREGATES = {"loss": "loss", "reward": "reward", "entropy": "entropy", "kl": "mean KL"}


def follow(folder: Path, rules: Sequence[Rule], *, interval: float, once: bool) -> None:
    """Show the state of a run, judged by these rules, every ``interval`` seconds until it ends or Ctrl-C, or once.

    Raises:
        ReadError: the folder is not a run directory.
    """
    console = Console()
    if once or not console.is_terminal:
        console.print(render_status(read_run_directory(folder), rules, console))
        return
    reader = RunReader(folder)
    with contextlib.suppress(KeyboardInterrupt), Live(console=console, auto_refresh=False) as live:
        while True:
            run = reader.read()
            live.update(render_status(run, rules, console), refresh=True)
            if run.identity.get("status") != "running":
                return
            time.sleep(interval)


def render_status(run: Run, rules: Sequence[Rule], console: Console) -> RenderableType:
    """Return the verdict so far, and the latest blocks beside the aggregates of their steps."""
    headline = Text(f"step {run.last_step}, {run.identity.get('status', 'unknown')}")
    return Group(
        render_short(diagnose_run(run, rules), console), headline, Text(), _blocks(run, console.width < NARROW)
    )


def _blocks(run: Run, narrow: bool) -> RenderableType:
    pair = run.pair
    if pair is None:
        return Text("No per-token blocks yet.")
    table = Table(box=None, pad_edge=False)
    shown = list(islice((block for block in reversed(run.blocks) if pair in block.sketches), SHOWN_BLOCKS))[::-1]
    rows = [_row(run, pair, block, narrow) for block in shown]
    table.add_column("steps", justify="right")
    for name in rows[-1]:
        table.add_column(name, justify="right")
    for block, row in zip(shown, rows, strict=True):
        table.add_row(f"{block.first_step}–{block.last_step}", *[f"{number:.3g}" for number in row.values()])
    return Group(Text(f"|log-ratio {pair}| of the latest blocks, in nats"), table)


def _row(run: Run, pair: str, block: Block, narrow: bool) -> dict[str, float]:
    sketch = block.sketches[pair]
    row = {f"{name} p99": sketch.quantile(0.99, name).value for name in (TEXT_ONLY, POST_TOOL)}
    if narrow:
        return row
    row = {f"{name} p95": sketch.quantile(0.95, name).value for name in (TEXT_ONLY, POST_TOOL)} | row
    row |= {"ESS/n": sketch.ess_share(POST_TOOL, cap=3.0).value, "α": sketch.alpha().value}
    means = {name: _mean(run, key, block) for key, name in AGGREGATES.items() if key in run.series}
    return row | means


def _mean(run: Run, key: str, block: Block) -> float:
    series = run.series[key]
    chosen = series.values[(series.steps >= block.first_step) & (series.steps <= block.last_step)]
    return float(chosen.mean()) if len(chosen) else float("nan")
