"""How often the tail detector alarms on runs without post-tool growth, how soon on runs with it, and what others see.

    make bench-detect                      # about half an hour on one core; rewrites its sections of results.md
    python benchmarks/detect.py --quick    # two minutes, prints only

The settings were chosen on seeds 1000 to 1999 and 50000 to 50599. Tables of whole runs and of other tools:
:mod:`whole_runs`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from results import write_section
from scipy import stats
from simulated_runs import (
    ALTERNATIVES,
    DEMO,
    LONG,
    POST,
    ROUGH_NULL,
    SHORT,
    TEXT,
    TOKENS_PER_SEQUENCE,
    Floats,
    Layout,
    Scenario,
    ar1,
    nulls_of,
    simulate,
)
from whole_runs import recorded_report, whole_report

from foreshock.detect.e_process import CRITICAL_STEPS, WARNING_STEPS, e_detector, threshold
from foreshock.detect.series_change import series_change
from foreshock.detect.tail import tail_contrast
from foreshock.rules.tail_course import HARMFUL_P99, TailCourse, TailReading, reading_key
from foreshock.run import Block
from foreshock.stats.diagnostic import Diagnostic

PAIR = "policy/ref"


def course_of(tails: Floats, layout: Layout, text: bool = True) -> TailCourse:
    """What the rule makes of the tails (level and shape, 2 slices, blocks); without ``text``, as if there were no
    text-only tokens.

    The bound of harm counts as reached in every block: it only ever removes critical findings.
    """
    length, blocks = layout.steps_per_block, []
    for index in range(tails.shape[-1]):
        block = Block(index, index * length + 1, (index + 1) * length, {PAIR: None})  # type: ignore[dict-item]
        block.derived[reading_key(PAIR)] = _reading(tails[:, :, index], text)
        blocks.append(block)
    course = TailCourse(PAIR, 0, length)
    course.extend(blocks)
    return course


def _reading(tails: Floats, text: bool) -> TailReading:
    """The reading of one block, from its tails (level and shape, 2 slices)."""
    missing = Diagnostic.unknown(0, "no text-only tokens")
    values = []
    for text_only, post_tool in tails.tolist():
        own = Diagnostic(post_tool, 1)
        values += [own, tail_contrast(own, Diagnostic(text_only, 1) if text else missing)]
    return TailReading(*values, HARMFUL_P99)


COLUMNS = (
    "the rule: warning",
    "the rule: critical",
    "evidence without the bounds on growth",
    "no text-only tokens: note",
    "no text-only tokens: warning",
)


def firsts_of(tails: Floats, layout: Layout) -> tuple[int | None, ...]:
    """The first block at which each column alarms; None for never."""
    course, alone = course_of(tails, layout), course_of(tails, layout, text=False)
    blocks = (course.alarm, course.critical, alone.alone, alone.lone_warning)
    alarm, critical, note, warning = (None if block is None else block.index for block in blocks)
    series = [(values[POST], values[POST] - values[TEXT]) for values in tails]
    evidence = np.mean(
        [np.min([e_detector(values, layout.steps_per_block) for values in pair], axis=0) for pair in series], axis=0
    )
    reached = np.flatnonzero(evidence >= threshold(layout.steps_per_block, WARNING_STEPS))
    return alarm, critical, int(reached[0]) if reached.size else None, note, warning


def null_cell(firsts: Sequence[int | None], layout: Layout) -> str:
    """Long runs: false alarms per 1,000 monitored steps up to the first; others: the share that alarms. Each with
    a 95 % bound."""
    hits = sum(first is not None for first in firsts)
    if layout is not LONG:
        low, high = stats.binomtest(hits, len(firsts)).proportion_ci(method="exact")
        return f"{hits / len(firsts):.1%} ({low:.1%}–{high:.1%})"
    whole = layout.steps - layout.warm_up
    steps = sum(whole if first is None else (first + 1) * layout.steps_per_block for first in firsts) / 1000
    return f"{hits / steps:.3f} (≤ {stats.chi2.ppf(0.95, 2 * hits + 2) / 2 / steps:.3f})"


def alternative_cell(firsts: Sequence[int | None], layout: Layout) -> str:
    """Share of the runs without an earlier alarm that alarm after the onset, and the median delay in steps."""
    onset = (layout.onset - layout.warm_up) / layout.steps_per_block
    clean = [first for first in firsts if first is None or first + 1 > onset]
    delays = [(first + 1 - onset) * layout.steps_per_block for first in clean if first is not None]
    return f"{len(delays) / max(len(clean), 1):.0%}, {np.median(delays):.0f}" if delays else "0 %"


def runs_of(scenario: Scenario, layout: Layout, runs: int) -> int:
    """Three times as many long runs with rough noise alone: critical findings there are rare, a bound takes many."""
    return 3 * runs if layout is LONG and scenario is ROUGH_NULL else runs


def table(
    layout: Layout,
    scenarios: Sequence[Scenario],
    runs: int,
    seed: int,
    cell: Callable[[Sequence[int | None], Layout], str],
) -> str:
    """Simulate each scenario and return a Markdown table: one line a scenario."""
    lines = ["| scenario | " + " | ".join(COLUMNS) + " |", "|---|" + "---|" * len(COLUMNS)]
    for scenario in scenarios:
        start = time.process_time()
        count = runs_of(scenario, layout, runs)
        firsts = [firsts_of(simulate(scenario, layout, seed + index), layout) for index in range(count)]
        cells = [cell(column, layout) for column in zip(*firsts, strict=True)]
        lines.append(f"| {scenario.name}: {scenario.what} | " + " | ".join(cells) + " |")
        print(f"{layout.name} {scenario.name}: {cells[:2]}, {time.process_time() - start:.0f} CPU-s", flush=True)
    return "\n".join(lines)


def report(runs_long: int, others: int, seed: int) -> str:
    """Simulate blocks under every scenario and return the section for results.md."""
    runs = ((LONG, runs_long), (DEMO, others), (SHORT, others))
    return "\n\n".join(layout_report(layout, count, seed) for layout, count in runs)


def layout_report(layout: Layout, runs: int, seed: int) -> str:
    """Return the tables of one kind of run."""
    name = layout.name[0].upper() + layout.name[1:]
    tokens = " and ".join(f"{count * TOKENS_PER_SEQUENCE:,}" for count in layout.sequences)
    rate = "false alarms per 1,000 steps (one-sided 95 % bound)"
    more = f" ({3 * runs:,} of {ROUGH_NULL.name})" if layout is LONG else ""
    return "\n".join(
        [
            f"### {name} runs: {layout.steps:,} steps, blocks of {layout.steps_per_block}",
            "",
            f"{runs:,} simulated runs a line{more}, seeds from {seed}; {tokens} tokens a step (text-only and "
            f"post-tool); monitored from step {layout.warm_up}. The warning is nominal for one false alarm in "
            f"{WARNING_STEPS:,} steps, the critical level for one in {CRITICAL_STEPS:,}.",
            "",
            f"No post-tool growth: {rate if layout is LONG else 'share of runs with any alarm (95 % interval)'}.",
            "",
            table(layout, nulls_of(layout), runs, seed, null_cell),
            "",
            f"Post-tool growth from step {layout.onset}, complete after {layout.ramp} steps: share of runs detected, "
            "median delay in steps.",
            "",
            table(layout, ALTERNATIVES, runs, seed, alternative_cell),
        ]
    )


def aggregates_report(series: int, seed: int) -> str:
    """Share of stationary and of shifted AR(1) series that :func:`series_change` says have moved."""
    rhos = (0.0, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95)
    lines = [
        f"Share of {series:,} AR(1) series that are said to have moved, asked once at the end. Baseline: the first "
        "quarter of the steps after step 30, at least 20. The shift comes halfway and is in standard deviations of one "
        "step.",
        "",
        "| steps | shift | " + " | ".join(f"ρ = {rho}" for rho in rhos) + " |",
        "|---|---|" + "---|" * len(rhos),
    ]
    for length in (110, 150, 1000):
        step = np.arange(length)
        baseline = (30, 29 + max(20, (length - 30) // 4))
        for shift in (0.0, 1.5, 3.0):
            cells = []
            for rho in rhos:
                noise = ar1(np.random.default_rng([seed, length]), (series, length + 200), rho, 1.0)[:, 200:]
                values = noise + shift * (step >= length // 2)
                cells.append(np.mean([series_change(step, row, baseline).moved for row in values]))
            lines.append(f"| {length:,} | {shift:g} | " + " | ".join(f"{cell:.1%}" for cell in cells) + " |")
        print(f"aggregates, {length} steps: done", flush=True)
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the tail detector, all rules together, and other tools.")
    parser.add_argument("--quick", action="store_true", help="few runs, two minutes, prints only")
    parser.add_argument("--seed", type=int, default=60_000, help="first seed; no choice was made on it")
    parser.add_argument("--peers", type=Path, help="Python that has benchmarks/peers/requirements.txt installed")
    options = parser.parse_args()
    seed, peers = options.seed, options.peers
    if options.quick:
        print(report(8, 60, seed), aggregates_report(50, seed), whole_report(2, seed, peers), recorded_report(peers))
        return
    write_section("detect", "Tail detector", report(400, 600, seed))
    write_section("whole_runs", "All rules together, and other tools", whole_report(50, seed, peers))
    write_section("recorded", "Recorded runs", recorded_report(peers))
    write_section("aggregates", "State of an aggregate series", aggregates_report(1000, seed))


if __name__ == "__main__":
    main()
