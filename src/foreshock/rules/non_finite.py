"""Non-finite values: a tensor or key holds NaN or infinity, and the first one is named.

What: a log-probability, an advantage, the loss or the gradient norm is NaN or infinite.
Why it matters: what came first tells the cause; what came after is only its echo.
Known problems: per-token tensors are attributed to the optimizer step, logged keys to the row in which they appear. A
single update that a loss scaler skips, and single tokens that a sampler could not score, are only noted. A log in
which no number is finite cannot be judged.
Example: "ref log-probabilities had the first non-finite value, at step 47. All later values of loss and grad_norm are
finite: the weights were not spoilt."
Options: none.
References: Micikevicius et al., "Mixed precision training" (arXiv:1710.03740), on loss scaling and skipped updates.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from foreshock.rules.block_counts import NOT_FINITE, block_counts
from foreshock.rules.cause_names import NUMERICS
from foreshock.rules.finding import CannotJudge, Finding, RuleResult
from foreshock.rules.statements import listed, sentences
from foreshock.run import Run

ID = "non-finite-values"

NEEDS = "blocks of foreshock.watch, or loss, reward, grad_norm"

SEVERITIES = ("note", "warning", "critical")

TENSORS = ("rollout", "old", "ref", "advantages", "policy")
"""In the order in which a step computes them, so that a tie within one step names the cause, not the echo."""

KEYS = ("reward", "loss", "grad_norm")
"""Logged scalars that must be finite. Others may be undefined by design, such as ``kl`` with beta 0."""

UPDATE = ("loss", "grad_norm")
"""A loss scaler may skip an update whose loss or gradient is not finite; once, with finite ones after it, is harmless.

What they are later shows whether the weights were hit.
"""

EPOCH = "epoch"
"""What a trainer writes beside values whatever they are."""

SAMPLER = "rollout log-probabilities"
"""A sampler leaves out single tokens that it cannot score, and the trainer leaves them out of its correction."""

SAMPLER_SHARE = 0.01
"""Share of the response tokens without a sampler's log-probability up to which that is only noted (heuristic)."""

GO_BACK = "Go back to the last checkpoint before this step and look at what produced this tensor."
FROM_THE_START = "It was so from the first step: look at the model that was loaded, its precision and the first batch."


def check(run: Run) -> RuleResult:
    """Report the first non-finite tensor or key of a run; critical when the policy, the loss or the gradient is hit."""
    events = sorted(_events(run), key=lambda event: (event[0], event[1]))
    if not events:
        judged = tuple(key for key in KEYS if key in run.series)
        return RuleResult(judged=(f"all values are finite ({', '.join(judged)})",) if judged else ())
    if not run.blocks and not any(np.isfinite(run.series[key].values).any() for key in run.series if key != EPOCH):
        gap = f"no value that this run logs is finite ({listed([what for _, _, what, _ in events])} among them)."
        return RuleResult(cannot_judge=(CannotJudge(ID, gap, "Look at the first batch, and at what writes the log."),))
    first_step, _, name, count = events[0]
    rows = [{"what": what, "first step": step, "values": int(values)} for step, _, what, values in events]
    hit = {what for _, _, what, _ in events}
    excuse = ""
    once = all(step == first_step and values == 1 for step, _, _, values in events)
    if hit <= set(UPDATE) and once and all(np.isfinite(run.series[key].values[-1]) for key in hit):
        excuse = "A single update that the scaler skips is harmless."
    if hit == {SAMPLER} and count <= SAMPLER_SHARE * block_counts(run).total["response_tokens"]:
        excuse = "The sampler could not score a few tokens; the trainer leaves them out."
    fatal = hit & {*UPDATE, "policy log-probabilities"}
    severity = "note" if excuse else "critical" if fatal else "warning"
    return RuleResult(
        (
            Finding(
                rule=ID,
                severity=severity,
                summary=sentences(
                    f"{name} had the first non-finite value, at step {first_step}.", excuse or _weights(run, first_step)
                ),
                steps=(first_step, run.last_step),
                evidence=tuple(rows),
                certainty="Counted, not estimated: there is no false alarm.",
                cause=NUMERICS,
                advice=FROM_THE_START if first_step <= _first_step(run) else GO_BACK,
                next_check=f"Run the batch of step {first_step} again in float32 and look at {name}.",
            ),
        )
    )


def _first_step(run: Run) -> int:
    steps = [int(series.steps[0]) for series in run.series.values() if len(series)]
    return min(steps + [block.first_step for block in run.blocks[:1]])


def _weights(run: Run, since: int) -> str:
    """Say whether the weights were hit, from the loss and the gradient after a step; "" when that is not to be seen."""
    later = {key: run.series[key].values[run.series[key].steps > since] for key in UPDATE if key in run.series}
    later = {key: np.isfinite(values) for key, values in later.items() if values.size}
    if not later:
        return ""
    more_thinned_out = any(run.series[key].level and run.series[key].not_finite[0] > 1 for key in later)
    if all(finite.all() for finite in later.values()) and not more_thinned_out:
        return f"All later values of {listed(list(later))} are finite: the weights were not spoilt."
    lost = [key for key, finite in later.items() if not finite.any()]
    return f"No later value of {listed(lost)} is finite: the weights are probably lost." if lost else ""


def _events(run: Run) -> Iterator[tuple[int, int, str, float]]:
    """Yield ``(first step, order within a step, name, count)`` for everything that was not finite."""
    counts = block_counts(run)
    for order, tensor in enumerate(TENSORS):
        name = "advantages" if tensor == "advantages" else f"{tensor} log-probabilities"
        counter = NOT_FINITE + tensor
        if counter in counts.first:
            yield counts.first[counter], order, name, counts.total[counter]
    for order, key in enumerate(KEYS, start=len(TENSORS)):
        if key in run.series:
            rows, step = run.series[key].not_finite
            if step is not None:
                yield step, order, key, float(rows)
