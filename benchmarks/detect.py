"""How often the tail detector alarms on simulated runs without post-tool growth, and how soon on runs with it.

Every step of a simulated run draws |r| of its response tokens, slice by slice: Student-t tokens with 3 degrees of
freedom in sequences of 40 tokens that share a scale (log-normal, sd 0.5: a token is worth far less than an
independent one), times a step's scale with AR(1) noise that is independent for each slice (the hardest case for a
contrast). Blocks then go through the detector as in a real run. The exact tail of the tokens stands in for the
sketch's, which is within 0.8 % of it.

    python benchmarks/detect.py            # about 25 minutes on one core; rewrites its two sections of results.md
    python benchmarks/detect.py --quick    # a minute or two, prints only
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from results import write_section
from scipy import stats

from foreshock.detect.aggregates import series_change
from foreshock.detect.e_process import CRITICAL_STEPS, KEPT_PER_STEP, WARNING_STEPS, e_detector, threshold
from foreshock.detect.tail import TAIL_SHARE

TOKENS_PER_SEQUENCE = 40
TEXT, POST = 0, 1
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Layout:
    """One kind of run: its length, its blocks, and how many sequences a step holds in each slice."""

    name: str
    steps: int
    steps_per_block: int
    warm_up: int
    onset: int
    ramp: int
    sequences: tuple[int, int]
    burn_in: tuple[float, float] | None
    """Time constants in steps of 1 − e^(−t/τ), by which |r| rises from zero, text-only and post-tool."""


LONG = Layout("long", 1000, 10, 150, 400, 200, (32, 32), None)
SHORT = Layout("short", 150, 5, 30, 35, 100, (22, 8), (8.0, 10.0))


@dataclass(slots=True)
class Run:
    """What a scenario may change, step by step: ``log_scale`` and ``sequences`` are (2, steps), the others
    post-tool."""

    log_scale: Floats
    sequences: Floats
    mixture: Floats
    heavy: Floats
    """Probability of a step whose post-tool tokens have 2 degrees of freedom instead of 3."""


Change = Callable[[Run, Floats, Floats, Layout, np.random.Generator], None]
"""Alters a run, given the steps 0 … n − 1, the growth 0 … 1 after the onset, the layout and a generator."""


def _drift(run: Run, step: Floats, growth: Floats, layout: Layout, rng: np.random.Generator) -> None:
    run.log_scale += np.log(2) * step / layout.steps


def _more_tools(run: Run, step: Floats, growth: Floats, layout: Layout, rng: np.random.Generator) -> None:
    run.sequences[POST] = layout.sequences[POST] / (2 if layout is SHORT else 4) * 8 ** (step / layout.steps)


def _cyclic(run: Run, step: Floats, growth: Floats, layout: Layout, rng: np.random.Generator) -> None:
    run.log_scale += np.array([[0.05], [0.15]]) * np.sin(2 * np.pi * (step / 47 + rng.random()))


def _restart(run: Run, step: Floats, growth: Floats, layout: Layout, rng: np.random.Generator) -> None:
    since = step - layout.steps // 2
    run.log_scale += np.where(since >= 0, np.log1p(-0.4 * np.exp(-np.maximum(since, 0) / 12)), 0.0)


def _text_shrinks(run: Run, step: Floats, growth: Floats, layout: Layout, rng: np.random.Generator) -> None:
    run.log_scale[TEXT] -= np.log(2) * step / layout.steps


def _slow_burn_in(run: Run, step: Floats, growth: Floats, layout: Layout, rng: np.random.Generator) -> None:
    if layout.burn_in is not None:
        run.log_scale[POST] += np.log1p(-np.exp(-(step + 1) / 15)) - np.log1p(
            -np.exp(-(step + 1) / layout.burn_in[POST])
        )


def _mixture(run: Run, step: Floats, growth: Floats, layout: Layout, rng: np.random.Generator) -> None:
    run.mixture = 0.04 * growth


def _scale(run: Run, step: Floats, growth: Floats, layout: Layout, rng: np.random.Generator) -> None:
    run.log_scale[POST] += np.log(1.5) * growth


def _growth(run: Run, step: Floats, growth: Floats, layout: Layout, rng: np.random.Generator) -> None:
    run.log_scale[POST] += np.log(1.6) * np.maximum(step - layout.onset, 0) / 100


def _strong(run: Run, step: Floats, growth: Floats, layout: Layout, rng: np.random.Generator) -> None:
    run.log_scale[POST] += np.log(2.5) * growth


def _index(run: Run, step: Floats, growth: Floats, layout: Layout, rng: np.random.Generator) -> None:
    run.heavy = growth


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    what: str
    change: Change | None = None
    rough: bool = False
    """Step noise AR(1) .9 with sd .3 instead of .8 with sd .1."""


NULLS = (
    Scenario("N", "stationary"),
    Scenario("N2", "stationary, rough step noise", rough=True),
    Scenario("D", "both slices drift ×2 over the run", _drift),
    Scenario("E", "tool volume ×8 over the run", _more_tools),
    Scenario("cyclic", "data mix cycles every 47 steps, ±15 % post-tool, ±5 % text-only", _cyclic),
    Scenario("restart", "both slices fall to ×0.6 halfway and recover", _restart),
    Scenario("text", "the text-only tail shrinks ×0.5 over the run", _text_shrinks),
    Scenario("burn-in", "short runs: post-tool burn-in twice as slow as text-only", _slow_burn_in),
)
ALTERNATIVES = (
    Scenario("A", "post-tool mixture, 6× tail, 0 → 4 % of tokens", _mixture),
    Scenario("B", "post-tool scale ×1.5", _scale),
    Scenario("C", "post-tool tail index 3 → 2", _index),
    Scenario("A2", "A under rough step noise", _mixture, rough=True),
    Scenario("G", "post-tool scale ×1.6 per 100 steps, without end", _growth),
    Scenario("S", "post-tool scale ×2.5", _strong),
)


def ar1(rng: np.random.Generator, shape: tuple[int, int], rho: float, sd: float) -> Floats:
    """Stationary AR(1) noise along the last axis, of standard deviation ``sd``."""
    noise = rng.standard_normal(shape) * sd
    for step in range(1, shape[1]):
        noise[:, step] = rho * noise[:, step - 1] + np.sqrt(1 - rho * rho) * noise[:, step]
    return noise


def build(scenario: Scenario, layout: Layout, rng: np.random.Generator) -> Run:
    step = np.arange(layout.steps, dtype=float)
    rho, sd = (0.9, 0.3) if scenario.rough else (0.8, 0.1)
    run = Run(
        log_scale=ar1(rng, (2, layout.steps), rho, sd),
        sequences=np.outer(layout.sequences, np.ones(layout.steps)),
        mixture=np.zeros(layout.steps),
        heavy=np.zeros(layout.steps),
    )
    if layout.burn_in is not None:
        run.log_scale += np.log1p(-np.exp(-(step + 1) / np.array(layout.burn_in)[:, None]))
    if scenario.change is not None:
        growth = np.clip((step - layout.onset) / layout.ramp, 0, 1)
        scenario.change(run, step, growth, layout, rng)
    return run


def draw(
    rng: np.random.Generator, sequences: int, log_scale: float, mixture: float, heavy: bool
) -> NDArray[np.float32]:
    """|r| of the tokens of one slice and step, (sequences · 40,)."""
    shape = (sequences, TOKENS_PER_SEQUENCE)
    chi2 = 2 * rng.standard_exponential(shape, dtype=np.float32)
    if not heavy:
        chi2 += rng.standard_normal(shape, dtype=np.float32) ** 2
    size = np.abs(rng.standard_normal(shape, dtype=np.float32)) / np.sqrt(np.maximum(chi2, 1e-6) / (2 if heavy else 3))
    if mixture > 0:
        size *= np.where(rng.random(shape, dtype=np.float32) < mixture, 6, 1)
    return (size * np.exp(0.5 * rng.standard_normal((sequences, 1), dtype=np.float32) + log_scale)).ravel()


def tail_of(tokens: NDArray[np.float32]) -> tuple[float, float]:
    """The tail level of :mod:`foreshock.detect.tail`, and beside it the mean of log p99, log p99.9 and Hill's ξ."""
    top = int(TAIL_SHARE * tokens.size)
    largest = np.log(np.sort(np.partition(tokens, tokens.size - top - 1)[-top - 1 :]))
    level = float(largest[1:].mean())
    three = (largest[-int(0.01 * tokens.size) - 1] + largest[-int(0.001 * tokens.size) - 1] + level - largest[0]) / 3
    return level, float(three)


def simulate(scenario: Scenario, layout: Layout, seed: int) -> Floats:
    """One run as (2 statistics, 2 slices, blocks after the warm-up)."""
    rng = np.random.default_rng([seed, *scenario.name.encode(), layout.steps])
    run = build(scenario, layout, rng)
    heavy = rng.random(layout.steps) < run.heavy
    blocks = []
    for first in range(layout.warm_up, layout.steps - layout.steps_per_block + 1, layout.steps_per_block):
        steps = range(first, first + layout.steps_per_block)
        slices = []
        for name in (TEXT, POST):
            parts = [
                draw(
                    rng,
                    int(run.sequences[name, t]),
                    run.log_scale[name, t],
                    run.mixture[t] if name == POST else 0.0,
                    bool(heavy[t]) and name == POST,
                )
                for t in steps
            ]
            slices.append(tail_of(np.concatenate(parts)))
        blocks.append(slices)
    return np.array(blocks).transpose(2, 1, 0)


def fixed_baseline_bets(values: Floats, layout: Layout, baseline: int = 8, tilt: float = 1.0) -> Floats:
    """e-values whose bet looks at the rank among the first ``baseline`` blocks only, 0 for those blocks.

    Validity still comes from the rank among all earlier blocks: the bet spreads its odds over those ranks.
    """
    outcomes = np.zeros(values.size)
    first = np.sort(values[:baseline])
    for block in range(baseline, values.size):
        earlier = np.sort(values[:block])
        below = np.concatenate(([0], np.searchsorted(first, earlier, "right")))
        odds = np.exp(tilt * stats.norm.ppf((below + 0.5) / (baseline + 1)))
        outcomes[block] = odds[np.searchsorted(earlier, values[block])] * odds.size / odds.sum()
    return outcomes * KEPT_PER_STEP**layout.steps_per_block


def bets(values: Floats, layout: Layout) -> Floats:
    """What the detector multiplies 1 + M by in each block: 0 within its reference."""
    evidence = e_detector(values, layout.steps_per_block)
    return evidence / (1 + np.concatenate(([0.0], evidence[:-1])))


@dataclass(frozen=True, slots=True)
class Method:
    name: str
    series: Callable[[Floats], tuple[Floats, ...]]
    """From (2 statistics, 2 slices, blocks) to the series that must all be high."""
    bets: Callable[[Floats, Layout], Floats] = bets


METHODS = (
    Method("the detector: contrast and level", lambda run: (run[0, POST] - run[0, TEXT], run[0, POST])),
    Method("contrast alone", lambda run: (run[0, POST] - run[0, TEXT],)),
    Method("level alone", lambda run: (run[0, POST],)),
    Method("mean of log p99, log p99.9 and ξ instead", lambda run: (run[1, POST] - run[1, TEXT], run[1, POST])),
    Method(
        "bets against the first 8 blocks instead",
        lambda run: (run[0, POST] - run[0, TEXT], run[0, POST]),
        fixed_baseline_bets,
    ),
)


def alarms(run: Floats, layout: Layout, method: Method, level: float) -> list[int]:
    """Blocks in which all M of the method reach the level; after each alarm they start again from 0."""
    factors = np.array([method.bets(series, layout) for series in method.series(run)])
    evidence, found = np.zeros(len(factors)), []
    for block, factor in enumerate(factors.T):
        evidence = factor * (1 + evidence)
        if evidence.min() >= level:
            found.append(block)
            evidence[:] = 0
    return found


def null_cell(runs: list[Floats], layout: Layout, method: Method, level: float) -> str:
    """Long runs: false alarms per 1,000 monitored steps; short runs: the share that alarms. Each with a 95 %
    bound."""
    counts = [len(alarms(run, layout, method, level)) for run in runs]
    if layout is SHORT:
        hit = sum(count > 0 for count in counts)
        low, high = stats.binomtest(hit, len(runs)).proportion_ci(method="exact")
        return f"{hit / len(runs):.1%} ({low:.1%}–{high:.1%})"
    total, exposure = sum(counts), len(runs) * (layout.steps - layout.warm_up) / 1000
    return f"{total / exposure:.3f} (≤ {stats.chi2.ppf(0.95, 2 * total + 2) / 2 / exposure:.3f})"


def alternative_cell(runs: list[Floats], layout: Layout, method: Method, level: float) -> str:
    """Share of the runs without an earlier alarm that alarm after the onset, and the median delay in steps."""
    onset = (layout.onset - layout.warm_up) / layout.steps_per_block
    first = [found[0] if found else None for found in (alarms(run, layout, method, level) for run in runs)]
    clean = [block for block in first if block is None or block + 1 > onset]
    delays = [(block + 1 - onset) * layout.steps_per_block for block in clean if block is not None]
    if not delays:
        return "0 %"
    return f"{len(delays) / max(len(clean), 1):.0%}, {np.median(delays):.0f}"


def table(layout: Layout, scenarios: tuple[Scenario, ...], runs: int, seed: int, methods: tuple[Method, ...]) -> str:
    """Simulate each scenario and return a Markdown table: one line a scenario, one column a method and level."""
    null = scenarios is NULLS
    cell = null_cell if null else alternative_cell
    levels = {"warning": WARNING_STEPS, "critical": CRITICAL_STEPS}
    columns = [(method, name) for method in methods for name in levels if method is methods[0] or name == "warning"]
    lines = [
        "| scenario | " + " | ".join(f"{method.name}, {level}" for method, level in columns) + " |",
        "|---|" + "---|" * len(columns),
    ]
    for scenario in scenarios:
        if scenario.name == "burn-in" and layout is LONG:
            continue
        start = time.process_time()
        simulated = [simulate(scenario, layout, seed + index) for index in range(runs)]
        cells = [
            cell(simulated, layout, method, threshold(layout.steps_per_block, levels[level]))
            for method, level in columns
        ]
        lines.append(f"| {scenario.name}: {scenario.what} | " + " | ".join(cells) + " |")
        print(f"{layout.name} {scenario.name}: {cells[0]}, {time.process_time() - start:.0f} CPU-s", flush=True)
    return "\n".join(lines)


def report(runs_long: int, runs_short: int, seed: int) -> str:
    """Run everything and return the section for results.md."""
    parts = []
    for layout, runs in ((LONG, runs_long), (SHORT, runs_short)):
        tokens = " and ".join(f"{count * TOKENS_PER_SEQUENCE:,}" for count in layout.sequences)
        parts += [
            f"### {layout.name.capitalize()} runs: {layout.steps:,} steps, blocks of {layout.steps_per_block}",
            "",
            f"{runs:,} simulated runs a line, seeds {seed} to {seed + runs - 1}; {tokens} tokens a step (text-only and "
            f"post-tool); monitored from step {layout.warm_up}. The warning is nominal for one false alarm in "
            f"{WARNING_STEPS:,} steps, the critical level for one in {CRITICAL_STEPS:,}.",
            "",
            "No post-tool growth: false alarms per 1,000 steps (one-sided 95 % bound)."
            if layout is LONG
            else "No post-tool growth: share of runs with any alarm (95 % interval).",
            "",
            table(layout, NULLS, runs, seed, METHODS),
            "",
            f"Post-tool growth from step {layout.onset}, complete after {layout.ramp} steps: share of runs detected, "
            "median delay in steps.",
            "",
            table(layout, ALTERNATIVES, runs, seed, METHODS),
            "",
        ]
    return "\n".join(parts)


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
    parser = argparse.ArgumentParser(description="Measure the tail detector on simulated runs.")
    parser.add_argument("--quick", action="store_true", help="few runs, one or two minutes, prints only")
    parser.add_argument(
        "--seed", type=int, default=20_000, help="first seed; the constants were chosen on 1000 to 1999"
    )
    options = parser.parse_args()
    if options.quick:
        print(report(8, 60, options.seed))
        print(aggregates_report(100, options.seed))
        return
    write_section("aggregates", "State of an aggregate series", aggregates_report(1000, options.seed))
    write_section("detect", "Tail detector", report(200, 1500, options.seed))


if __name__ == "__main__":
    main()
