"""Simulated runs for the tail detector: block statistics of post-tool and text-only tokens, with and without growth.

Every step of a run draws log |r| of its response tokens, slice by slice: Student-t tokens with 3 degrees of freedom in
sequences of 40 tokens that share a scale (log-normal, sd 0.5: a token is worth far less than an independent one), times
a step's scale with AR(1) noise that is independent for each slice (the hardest case for a contrast). Tokens and scales
are drawn from 65,536 equally likely quantiles, a tenth of the cost of exact draws. The exact tail of the tokens stands
in for the sketch's, which is within 0.8 % of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from foreshock.detect.tail import BULK, TAIL_SHARE

TOKENS_PER_SEQUENCE = 40
TEXT, POST = 0, 1
Floats = NDArray[np.float64]

_MIDPOINTS = (np.arange(65_536) + 0.5) / 65_536
_LOG_T3, _LOG_T2 = (np.log(stats.t.ppf(0.5 + _MIDPOINTS / 2, df)).astype(np.float32) for df in (3, 2))
_LOG_SCALE = (0.5 * stats.norm.ppf(_MIDPOINTS)).astype(np.float32)


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
DEMO = Layout("the demo's", 210, 6, 30, 35, 100, (28, 16), (8.0, 10.0))
SHORT = Layout("short", 150, 5, 30, 35, 100, (22, 8), (8.0, 10.0))


@dataclass(slots=True)
class SimulatedRun:
    """What a scenario may change, step by step: ``log_scale`` and ``sequences`` are (2, steps), the others
    post-tool."""

    log_scale: Floats
    sequences: Floats
    mixture: Floats
    """Share of the tokens that are six times larger."""
    heavy: Floats
    """Probability of a step whose post-tool tokens have 2 degrees of freedom instead of 3."""


Change = Callable[[SimulatedRun, Floats, Floats, Layout, np.random.Generator], None]
"""Alters a run, given the steps 0 … n − 1, the growth 0 … 1 after the onset, the layout and a generator."""


def _drift(run: SimulatedRun, step: Floats, growth: Floats, layout: Layout, rng: np.random.Generator) -> None:
    run.log_scale += np.log(2) * step / layout.steps


def _more_tools(run: SimulatedRun, step: Floats, growth: Floats, layout: Layout, rng: np.random.Generator) -> None:
    run.sequences[POST] = layout.sequences[POST] / (4 if layout is LONG else 2) * 8 ** (step / layout.steps)


def _cyclic(run: SimulatedRun, step: Floats, growth: Floats, layout: Layout, rng: np.random.Generator) -> None:
    run.log_scale += np.array([[0.05], [0.15]]) * np.sin(2 * np.pi * (step / 47 + rng.random()))


def _restart(run: SimulatedRun, step: Floats, growth: Floats, layout: Layout, rng: np.random.Generator) -> None:
    since = step - layout.steps // 2
    run.log_scale += np.where(since >= 0, np.log1p(-0.4 * np.exp(-np.maximum(since, 0) / 12)), 0.0)


def _text_shrinks(run: SimulatedRun, step: Floats, growth: Floats, layout: Layout, rng: np.random.Generator) -> None:
    run.log_scale[TEXT] -= np.log(2) * step / layout.steps


def _burn_in(text: float, post: float) -> Change:
    """Let |r| rise from zero with these time constants, in steps, instead of the layout's."""

    def change(run: SimulatedRun, step: Floats, growth: Floats, layout: Layout, rng: np.random.Generator) -> None:
        if layout.burn_in is not None:
            run.log_scale -= _rise(step, layout.burn_in)
        run.log_scale += _rise(step, (text, post))

    return change


def _slow_rate(run: SimulatedRun, step: Floats, growth: Floats, layout: Layout, rng: np.random.Generator) -> None:
    """A learning rate that warms up over a tenth of the run: the policy leaves its reference as the rate adds up."""
    warm = layout.steps / 10
    travelled = np.where(step < warm, (step + 1) ** 2 / (2 * warm), step + 1 - warm / 2)
    if layout.burn_in is not None:
        run.log_scale -= _rise(step, layout.burn_in)
    text, post = (30.0, 40.0) if layout is LONG else (8.0, 10.0)
    run.log_scale += np.log1p(-np.exp(-travelled / np.array([[text], [post]])))


def _wandering(run: SimulatedRun, step: Floats, growth: Floats, layout: Layout, rng: np.random.Generator) -> None:
    run.mixture = 0.02 * np.exp(ar1(rng, (1, layout.steps), 0.9, 0.5)[0])


def _mixture(run: SimulatedRun, step: Floats, growth: Floats, layout: Layout, rng: np.random.Generator) -> None:
    run.mixture = 0.04 * growth


def _scale(factor: float) -> Change:
    def change(run: SimulatedRun, step: Floats, growth: Floats, layout: Layout, rng: np.random.Generator) -> None:
        run.log_scale[POST] += np.log(factor) * growth

    return change


def _growth(run: SimulatedRun, step: Floats, growth: Floats, layout: Layout, rng: np.random.Generator) -> None:
    run.log_scale[POST] += np.log(1.6) * np.maximum(step - layout.onset, 0) / 100


def _index(run: SimulatedRun, step: Floats, growth: Floats, layout: Layout, rng: np.random.Generator) -> None:
    run.heavy = growth


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    what: str
    change: Change | None = None
    noise: tuple[float, float] = (0.8, 0.1)
    """Autocorrelation and standard deviation of the step noise."""


ROUGH = (0.9, 0.3)
ROUGH_NULL = Scenario("N2", "stationary, rough step noise", noise=ROUGH)
NULLS = (
    Scenario("N", "stationary"),
    ROUGH_NULL,
    Scenario(
        "M", "2 % of post-tool tokens are six times larger, a share that wanders (log-normal, AR .9, sd .5)", _wandering
    ),
    Scenario("D", "both slices drift ×2 over the run", _drift),
    Scenario("E", "tool volume ×8 over the run", _more_tools),
    Scenario("cyclic", "data mix cycles every 47 steps, ±15 % post-tool, ±5 % text-only", _cyclic),
    Scenario("restart", "both slices fall to ×0.6 halfway and recover", _restart),
    Scenario("text", "the text-only tail shrinks ×0.5 over the run", _text_shrinks),
    Scenario("rate", "the learning rate warms up over a tenth of the run", _slow_rate),
)
SLOW_BURN_IN = Scenario("burn-in", "post-tool burn-in twice as slow as text-only (τ = 8 and 15)", _burn_in(8, 15))
SLOW_BURN_INS_OF_LONG_RUNS = (
    Scenario("burn-in", "post-tool burn-in twice as slow as text-only (τ = 30 and 60)", _burn_in(30, 60)),
    Scenario("slow burn-in", "τ = 30 and 100: after the warm-up the tail grows by ×1.25", _burn_in(30, 100)),
)
ALTERNATIVES = (
    Scenario("A", "post-tool mixture, 6× tail, 0 → 4 % of tokens", _mixture),
    Scenario("B", "post-tool scale ×1.5", _scale(1.5)),
    Scenario("C", "post-tool tail index 3 → 2", _index),
    Scenario("A2", "A under rough step noise", _mixture, noise=ROUGH),
    Scenario("G", "post-tool scale ×1.6 per 100 steps, without end", _growth),
    Scenario("S", "post-tool scale ×2.5", _scale(2.5)),
)


def nulls_of(layout: Layout) -> tuple[Scenario, ...]:
    """The scenarios without post-tool growth; a slow burn-in depends on the length of the warm-up."""
    return (*NULLS, *(SLOW_BURN_INS_OF_LONG_RUNS if layout is LONG else (SLOW_BURN_IN,)))


def ar1(rng: np.random.Generator, shape: tuple[int, int], rho: float, sd: float) -> Floats:
    """Stationary AR(1) noise along the last axis, of standard deviation ``sd``."""
    noise = rng.standard_normal(shape) * sd
    for step in range(1, shape[1]):
        noise[:, step] = rho * noise[:, step - 1] + np.sqrt(1 - rho * rho) * noise[:, step]
    return noise


def _rise(step: Floats, constants: tuple[float, float]) -> Floats:
    return np.asarray(np.log1p(-np.exp(-(step + 1) / np.array(constants)[:, None])))


def build(scenario: Scenario, layout: Layout, rng: np.random.Generator) -> SimulatedRun:
    """Draw the step noise and let the scenario change the run."""
    step = np.arange(layout.steps, dtype=float)
    run = SimulatedRun(
        log_scale=ar1(rng, (2, layout.steps), *scenario.noise),
        sequences=np.outer(layout.sequences, np.ones(layout.steps)),
        mixture=np.zeros(layout.steps),
        heavy=np.zeros(layout.steps),
    )
    if layout.burn_in is not None:
        run.log_scale += _rise(step, layout.burn_in)
    if scenario.change is not None:
        growth = np.clip((step - layout.onset) / layout.ramp, 0, 1)
        scenario.change(run, step, growth, layout, rng)
    return run


def log_tokens(run: SimulatedRun, name: int, steps: slice, rng: np.random.Generator) -> list[NDArray[np.float32]]:
    """log |r| of the tokens of one slice, one array a step."""
    sequences = run.sequences[name, steps].astype(int)
    tokens = _LOG_T3[rng.integers(0, 65_536, (sequences.sum(), TOKENS_PER_SEQUENCE), np.uint16)]
    of_step = np.repeat(np.arange(len(sequences)), sequences)
    if name == POST:
        heavy = (rng.random(len(sequences)) < run.heavy[steps])[of_step]
        if heavy.any():
            tokens[heavy] = _LOG_T2[rng.integers(0, 65_536, (heavy.sum(), TOKENS_PER_SEQUENCE), np.uint16)]
        share = run.mixture[steps][of_step]
        if share.any():
            tokens += np.where(rng.random(tokens.shape, np.float32) < share[:, None], np.log(np.float32(6)), 0)
    scale = _LOG_SCALE[rng.integers(0, 65_536, len(of_step), np.uint16)] + run.log_scale[name, steps][of_step]
    tokens += scale.astype(np.float32)[:, None]
    return np.split(tokens.ravel(), np.cumsum(sequences)[:-1] * TOKENS_PER_SEQUENCE)


def tail_of(tokens: NDArray[np.float32]) -> tuple[float, float]:
    """The tail level and the tail shape of :mod:`foreshock.detect.tail`, of log |r|."""
    top, bulk = tokens.size - int(TAIL_SHARE * tokens.size), int(BULK * tokens.size)
    placed = np.partition(tokens, (bulk, top))
    level = float(placed[top:].mean())
    return level, level - float(placed[bulk])


def simulate(scenario: Scenario, layout: Layout, seed: int) -> Floats:
    """Tail levels and shapes of one run as (level and shape, 2 slices, blocks after the warm-up)."""
    rng = np.random.default_rng([seed, *scenario.name.encode(), layout.steps])
    run = build(scenario, layout, rng)
    blocks = (layout.steps - layout.warm_up) // layout.steps_per_block
    monitored = slice(layout.warm_up, layout.warm_up + blocks * layout.steps_per_block)
    tails = np.empty((2, 2, blocks))
    for name in (TEXT, POST):
        steps = log_tokens(run, name, monitored, rng)
        for block in range(blocks):
            part = steps[block * layout.steps_per_block : (block + 1) * layout.steps_per_block]
            tails[:, name, block] = tail_of(np.concatenate(part))
    return tails
