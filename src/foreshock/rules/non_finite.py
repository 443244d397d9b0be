"""Non-finite values, with the first tensor or key named.

What: a log-probability, an advantage, the loss or the gradient norm is NaN or infinite.
Why it matters: what came first tells the cause; what came after is only its echo.
Known problems: per-token tensors are attributed to the optimizer step, logged keys to the row in which they appear.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from foreshock.rules.finding import Finding, RuleResult
from foreshock.run import Run

ID = "non-finite-values"

TENSORS = ("rollout", "old", "ref", "advantages", "policy")
"""In the order in which a step computes them, so that a tie within one step names the cause, not the echo."""

KEYS = ("reward", "loss", "grad_norm")
"""Logged scalars that must be finite. Others may be undefined by design, such as ``kl`` with beta 0."""

SKIPPED_BY_SCALER = "grad_norm"
"""A loss scaler may skip an update whose gradient is not finite; once alone that is harmless."""


def check(run: Run) -> RuleResult:
    """Report the first non-finite tensor or key of a run; critical when it lasts or when the loss is hit."""
    events = sorted(_events(run), key=lambda event: (event[0], event[1]))
    if not events:
        return RuleResult()
    first_step, _, name, _ = events[0]
    rows = [{"what": what, "first step": step, "values": int(count)} for step, _, what, count in events]
    hit = {what for _, _, what, _ in events}
    single = hit == {SKIPPED_BY_SCALER} and events[0][3] == 1
    severity = "note" if single else "critical" if hit & {"loss", "policy log-probabilities"} else "warning"
    return RuleResult(
        (
            Finding(
                rule=ID,
                severity=severity,
                summary=f"{name} had the first non-finite value, at step {first_step}."
                + (" A single gradient that the scaler skips is harmless." if single else ""),
                steps=(first_step, run.last_step),
                evidence=tuple(rows),
                certainty="Counted, not estimated: there is no false alarm.",
                cause="numerics",
                advice="Go back to the last checkpoint before this step and look at what produced this tensor.",
                next_check=f"Run the batch of step {first_step} again in float32 and look at {name}.",
            ),
        )
    )


def _events(run: Run) -> Iterator[tuple[int, int, str, float]]:
    """Yield ``(first step, order within a step, name, count)`` for everything that was not finite."""
    for order, tensor in enumerate(TENSORS):
        name = "advantages" if tensor == "advantages" else f"{tensor} log-probabilities"
        first, count = None, 0.0
        for block in run.blocks:
            for offset, value in enumerate(block.counters.get(f"nonfinite/{tensor}", ())):
                if value:
                    count += value
                    first = block.first_step + offset if first is None else first
        if first is not None:
            yield first, order, name, count
    for order, key in enumerate(KEYS, start=len(TENSORS)):
        if key in run.series:
            bad = ~np.isfinite(run.series[key].values)
            if bad.any():
                yield int(run.series[key].steps[bad][0]), order, key, float(bad.sum())
