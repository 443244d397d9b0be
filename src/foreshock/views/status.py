"""The state of a run directory that a training process is writing, for another terminal."""

from __future__ import annotations

import time
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from foreshock.batch import POST_TOOL, TEXT_ONLY
from foreshock.diagnosis import diagnose_run
from foreshock.run import Run, open_run
from foreshock.views.terminal import render_diagnosis

SHOWN_BLOCKS = 8
AGGREGATES = ("loss", "reward", "entropy", "kl")


def follow(folder: Path, *, interval: float, once: bool) -> None:
    """Show the state of a run every ``interval`` seconds until it ends, or once.

    Raises:
        ReadError: the folder is not a run directory.
    """
    console = Console()
    if once or not console.is_terminal:
        console.print(render_status(open_run(folder)))
        return
    with Live(console=console, auto_refresh=False) as live:
        while True:
            run = open_run(folder)
            live.update(render_status(run), refresh=True)
            if run.identity.get("status") != "running":
                return
            time.sleep(interval)


def render_status(run: Run) -> RenderableType:
    """Return the latest blocks beside the aggregates of their steps, and the diagnosis so far."""
    status = run.identity.get("status", "unknown")
    headline = Text.assemble((str(run.path), "bold"), f"  step {run.last_step}  {status}")
    return Group(headline, Text(), _blocks(run), Text(), render_diagnosis(diagnose_run(run)))


def _blocks(run: Run) -> RenderableType:
    pair = run.pair
    if pair is None:
        return Text("No per-token blocks yet.")
    table = Table(box=None, pad_edge=False, title=f"|log-ratio {pair}|, latest blocks", title_justify="left")
    keys = [key for key in AGGREGATES if key in run.series]
    columns = ["steps", "text-only p95", "p99", "post-tool p95", "p99", "post-tool ESS/n", "α", *keys]
    for name in columns:
        table.add_column(name, justify="right")
    for block in [block for block in run.blocks if pair in block.sketches][-SHOWN_BLOCKS:]:
        sketch = block.sketches[pair]
        tails = [sketch.quantile(q, name).value for name in (TEXT_ONLY, POST_TOOL) for q in (0.95, 0.99)]
        numbers = [*tails, sketch.ess_share(POST_TOOL, cap=3.0).value, sketch.alpha().value]
        numbers += [_mean(run, key, block.first_step, block.last_step) for key in keys]
        table.add_row(f"{block.first_step}–{block.last_step}", *[f"{number:.3g}" for number in numbers])
    return table


def _mean(run: Run, key: str, first: int, last: int) -> float:
    series = run.series[key]
    chosen = series.values[(series.steps >= first) & (series.steps <= last)]
    return float(chosen.mean()) if len(chosen) else float("nan")
