"""Environment fault: the reward falls within a few rows, and the policy's own metrics do not move.

What: ``reward``, or a rate of success, falls suddenly and far and stays low, while entropy, gradient norm, KL and
length are what they were.
Why it matters: a policy rarely forgets its task in four steps without any sign of it. A dead validator, a full disk or
a changed server does that, and every step trained on it teaches the wrong thing.
Known problems: a switch to harder data, such as a curriculum, looks the same. It needs two of the policy's metrics. A
fall that has recovered is a note.
Example: "reward fell from 0.83 to 0.12 within a few rows at step 212 and stays there. Policy metrics did not move
(entropy, grad_norm, completions/mean_length): look at the environment."
Options: none.
References: none beyond public reports of validator outages that were first read as forgetting.
"""

from __future__ import annotations

import re

import numpy as np

from foreshock.detect.series_change import step_noise
from foreshock.rules.cause_names import ENVIRONMENT
from foreshock.rules.finding import RuleResult
from foreshock.rules.series import Floats, Steps, rows_of
from foreshock.rules.statements import POLICY_METRICS, heuristic, one_finding
from foreshock.run import Run

ID = "environment-fault"

NEEDS = "reward or a rate of success; two of entropy, grad_norm, kl, completions/mean_length"

SEVERITIES = ("note", "warning", "critical")

SUCCESS = re.compile(r"reward|(.*/)?(success|solved|pass|accuracy)(_rate|/mean|_mean)?")
"""Keys whose sudden fall is looked for."""

BEFORE, AFTER, GAP = 20, 10, 4
"""Rows of the windows before and after, and the rows between them in which the fall may happen."""

FALL = 0.4
"""Share of the level before that is lost (heuristic)."""

NOISES = 5.0
"""The fall in standard deviations of one row, in the window before or in the run if larger there (heuristic)."""

POLICY_NOISES = 2.5
"""Move of a policy metric, in standard deviations of its window before, up to which it has not moved (heuristic)."""

LEAST_NOISE = 1e-4
"""Standard deviation, as a share of the largest value, below which noise is not told from rounding."""

FEWEST_METRICS = 2

CERTAINTY = heuristic(warned=0)


def check(run: Run) -> RuleResult:
    """Look for the largest sudden fall of each rate of success, then at the policy around it."""
    keys = [key for key in run.series if SUCCESS.fullmatch(key)]
    logged = [key for key in keys if rows_of(run, key)[1].size >= BEFORE + GAP + AFTER]
    for key in logged:
        place = _largest_fall(rows_of(run, key)[1])
        if place is not None and (result := _judge(run, key, place)) is not None:
            return result
    return RuleResult(judged=(f"no sudden fall beside a still policy ({', '.join(logged)})",) if logged else ())


def _judge(run: Run, key: str, place: int) -> RuleResult | None:
    steps, values = rows_of(run, key)
    step = int(steps[place])
    still, moved = _policy_around(run, step, int(steps[place + GAP]))
    if moved or len(still) < FEWEST_METRICS:
        return None
    before = float(values[place - BEFORE : place].mean())
    after, now = (float(part.mean()) for part in (values[place + GAP : place + GAP + AFTER], values[-AFTER:]))
    recovered = now > before - (before - after) / 2
    return one_finding(
        run,
        ID,
        "note" if recovered else "critical" if after <= before / 4 else "warning",
        step,
        f"{key} fell from {before:.3g} to {after:.3g} within a few rows at step {step} and "
        + (f"has recovered since ({now:.3g})." if recovered else "stays there."),
        f"Policy metrics did not move ({', '.join(still)}): look at the environment.",
        keys=(key, *still, "tools/failure_frequency"),
        certainty=CERTAINTY,
        cause=ENVIRONMENT,
        exclusions=("The policy's own metrics are flat: it is unlikely that the policy changed.",),
        advice="Pause, and check verifier, tools, network and disk. Then go on from a checkpoint before this step.",
        next_check="Replay ten solved completions from before this step: does the environment still reward them?",
    )


def _largest_fall(values: Floats) -> int | None:
    """Return where the window before ends at the largest fall, in its own noise; None without a large one."""
    largest = float(np.abs(values).max())
    if not largest:
        return None
    scaled = values / largest
    before, noise = _windows(scaled, BEFORE)
    noise = np.maximum(noise, step_noise(scaled[:BEFORE], scaled[BEFORE:])[0])
    after, _ = _windows(scaled, AFTER)
    count = values.size - BEFORE - GAP - AFTER + 1
    level, lost = before[:count], before[:count] - after[BEFORE + GAP :]
    sudden = (lost >= FALL * level) & (level > 0) & (lost >= NOISES * noise[:count])
    return int(np.argmax(np.where(sudden, lost, -np.inf))) + BEFORE if sudden.any() else None


def _windows(values: Floats, rows: int) -> tuple[Floats, Floats]:
    """Return mean and standard deviation of every stretch of so many rows, ``(n - rows + 1,)`` each."""
    origin = float(values.mean())
    sums = np.cumsum(np.append(0.0, values - origin))
    squares = np.cumsum(np.append(0.0, (values - origin) ** 2))
    mean = (sums[rows:] - sums[:-rows]) / rows
    variance = (squares[rows:] - squares[:-rows]) / rows - mean * mean
    return mean + origin, np.sqrt(np.maximum(variance, LEAST_NOISE**2))


def _policy_around(run: Run, start: int, end: int) -> tuple[list[str], list[str]]:
    """Return which policy metrics are the same before one step and from another on, and which are not."""
    judged = {}
    for key in POLICY_METRICS:
        steps, values = rows_of(run, key)
        before, after = _before(steps, values, start), values[np.searchsorted(steps, end) :][:AFTER]
        if before.size >= AFTER and after.size >= AFTER // 2:
            judged[key] = abs(float(after.mean() - before.mean())) <= POLICY_NOISES * float(before.std())
    return [key for key, still in judged.items() if still], [key for key, still in judged.items() if not still]


def _before(steps: Steps, values: Floats, start: int) -> Floats:
    end = int(np.searchsorted(steps, start))
    return values[max(end - BEFORE, 0) : end]
