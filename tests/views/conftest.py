"""Runs and diagnoses to draw: real sketches of random log-ratios with a known tail."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from foreshock.causes import Cause
from foreshock.diagnosis import Diagnosis
from foreshock.rules.finding import CannotJudge, Finding
from foreshock.run import Block, Run
from foreshock.sketch import LogRatioSketch

SLICES = ("text_only", "post_tool")


def sketch_of(
    rng: np.random.Generator, scales: dict[str, float], tokens: int = 1500, slices: tuple[str, ...] = SLICES
) -> LogRatioSketch:
    """Return a sketch with Student-t log-ratios (3 degrees of freedom) of a scale, in nats, per slice."""
    sketch = LogRatioSketch(slices)
    for name, scale in scales.items():
        values = scale * rng.standard_t(3, tokens)
        sketch.update(values, np.full(tokens, slices.index(name)))
    return sketch


def build_run(
    blocks: int = 15,
    *,
    pairs: tuple[str, ...] = ("policy/ref",),
    slices: tuple[str, ...] = SLICES,
    filled: tuple[str, ...] | None = None,
    scalars: tuple[str, ...] = ("loss", "reward", "entropy", "kl"),
    steps: int | None = None,
    path: Path | None = Path("runs/a"),
) -> Run:
    """Return a run of 10-step blocks whose post-tool tail stretches from the middle on, and scalars that stay flat."""
    rng = np.random.default_rng(7)
    run = Run(path=path)
    for index in range(blocks):
        growth = 1 + 2 * max(0, index / max(blocks, 2) - 0.4)
        scales = {name: 0.1 if name == "text_only" else 0.12 * growth for name in (filled or slices)}
        sketches = {pair: sketch_of(rng, scales, slices=slices) for pair in pairs}
        run.blocks.append(Block(index, 10 * index + 1, 10 * index + 10, sketches))
    levels = {"loss": 0.0, "reward": 0.6, "entropy": 1.2, "kl": 0.05}
    for step in range(1, (10 * blocks if steps is None else steps) + 1):
        run.append_scalars(step, {key: levels[key] + 0.02 * rng.standard_normal() for key in scalars})
    return run


def example_finding(**changes: object) -> Finding:
    """Return a finding with every field filled, as the tail rule raises it."""
    fields: dict[str, object] = {
        "rule": "post-tool-tail-growth",
        "severity": "critical",
        "summary": (
            "After tool results, p99 of |log-ratio policy/ref| has grown ×1.74 since steps 31–70, in text-only "
            "contexts ×1.02. Meanwhile loss, reward, entropy and mean KL: no change since step 30."
        ),
        "steps": (110, 150),
        "slice": "post_tool",
        "evidence": (
            {
                "segment": "baseline",
                "steps": "31–70",
                "slice": "text_only",
                "tokens": 60000,
                "p99": 0.5843,
                "ESS/n": 0.981,
            },
            {
                "segment": "latest",
                "steps": "111–150",
                "slice": "post_tool",
                "tokens": 6000,
                "p99": 1.2,
                "ESS/n": float("nan"),
            },
        ),
        "cause": "tool-conditioned support mismatch",
        "name": "hidden tail growth",
        "exclusions": (
            "The text-only tail is flat (×1.02): not the optimiser, which would move both slices.",
            "Hidden tail growth: at the alarm nothing had moved of loss, reward and entropy, which do not show it.",
        ),
        "advice": (
            "Keep a checkpoint from before this step. Hold post-tool tokens closer to the reference (a KL weight of "
            "their own), constrain the tool's output, or widen the reference with dialogues that hold such results."
        ),
        "next_check": (
            "Look at the response tokens right after the tool results that became more frequent lately: the same "
            "prompts with tool results in a fixed form should show no growth."
        ),
    }
    return Finding(**{**fields, **changes})  # type: ignore[arg-type]


def example_causes() -> tuple[Cause, ...]:
    """Return two causes that share their separating check, and one that a rule tells the kind of."""
    check = "Take 20 steps at learning rate 0: what still grows comes from the engine."
    said = "post-tool-tail-growth: After tool results, p99 of |log-ratio policy/ref| has grown ×1.74."
    rules = ("post-tool-tail-growth",)
    mismatch, engine = "tool-conditioned support mismatch", "engine mismatch"
    return (
        Cause(mismatch, (said, "The text-only tail is flat (×1.02)."), (), rules, check, engine, score=3),
        Cause(engine, (said,), ("The difference is flat (0.01, then 0.01).",), rules, check, mismatch, "drift", 1),
    )


def example_diagnosis(**changes: object) -> Diagnosis:
    """Return a diagnosis with findings of two severities, a gap and skipped lines."""
    note = Finding(
        rule="monitor-errors", severity="note", summary="1 error(s) inside Foreshock; the first in log: KeyError: 'x'.",
        steps=(0, 150), advice="Please report it.",
    )  # fmt: skip
    fields: dict[str, object] = {
        "path": Path("runs/a"),
        "verdict": "critical",
        "findings": (example_finding(), note),
        "cannot_judge": (
            CannotJudge("no-rollout", "No rollout log-probabilities were recorded.", "Set use_vllm=True."),
        ),
        "causes": example_causes(),
        "excluded": (Cause("optimiser instability", evidence_against=("grad_norm is flat (0.5, then 0.51).",)),),
        "judged": ("no KL runaway (kl)", "all values are finite (loss, reward)"),
        "skipped": {"torn or damaged lines in blocks.jsonl": 2},
    }
    return Diagnosis(**{**fields, **changes})  # type: ignore[arg-type]


@pytest.fixture
def make_run() -> Callable[..., Run]:
    return build_run


@pytest.fixture
def make_finding() -> Callable[..., Finding]:
    return example_finding


@pytest.fixture
def make_diagnosis() -> Callable[..., Diagnosis]:
    return example_diagnosis
