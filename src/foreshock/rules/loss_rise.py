"""Loss rise: the loss has left its lowest level for good, at once or slowly.

What: in a run without a reward, the late rows of ``loss`` (or ``perplexity``) lie far above the lowest stretch of the
run, in the run's own noise. Single spikes that came back are counted and noted.
Why it matters: a loss that does not come back after a spike has lost what was learned; later steps start from there.
Known problems: not judged in runs with a reward, where the loss has no level. A change of the data mix, or of the loss
itself, looks the same. Noise that is strongly autocorrelated hides a small rise.
Example: "loss has risen from 1.21, its lowest level (steps 301–330), to 2.04, over half of it since step 388."
Options: none.
References: Chowdhery et al., "PaLM" (arXiv:2204.02311), section 5.1, on spikes and going back to a checkpoint.
"""

from __future__ import annotations

import numpy as np

from foreshock.detect.series_change import MINIMUM_BASELINE, Change, series_change
from foreshock.rules.cause_names import OPTIMISER
from foreshock.rules.finding import RuleResult
from foreshock.rules.series import Course, Floats, course, lasts
from foreshock.rules.statements import heuristic, one_finding
from foreshock.run import Run

ID = "loss-rise"

NEEDS = "loss or perplexity, in a run without a reward"

SEVERITIES = ("note", "warning", "critical")

KEYS = ("loss", "perplexity")

RISEN, FAR = 1.2, 2.0
"""Late over lowest level of a warning and of a critical finding (heuristics)."""

NOISES = 5.0
"""The same in standard deviations of one row (heuristic)."""

SPIKE = 10.0
"""Rise from one row to the next, in robust standard deviations of such differences, that counts as a spike."""

PARTS = 20
"""Stretches in which the lowest level is looked for, of at least 20 rows."""

CERTAINTY = heuristic(warned=4, where=", all with long swings (AR(1), ρ = 0.9)")


def check(run: Run) -> RuleResult:
    """Compare the late rows with the lowest stretch, and count spikes."""
    judged = [found for key in KEYS if (found := course(run, key, warm_up=False)) and found.values.min() > 0]
    if "reward" in run.series or not judged:
        return RuleResult()
    risen = next((result for each in judged if (result := _rise(run, each))), None)
    if risen is not None:
        return risen
    spikes = next((result.findings for each in judged if (result := _spikes(run, each))), ())
    return RuleResult(spikes, judged=(f"the loss keeps what it gained ({', '.join(each.key for each in judged)})",))


def _rise(run: Run, loss: Course) -> RuleResult | None:
    if not lasts(loss, _has_risen):
        return None
    level, first, last, change = _lowest(loss)
    since = change.since_step or run.last_step
    return one_finding(
        run,
        ID,
        "critical" if loss.late_level >= FAR * level else "warning",
        since,
        f"{loss.key} has risen from {level:.3g}, its lowest level (steps {first}–{last}), to {loss.late_level:.3g}, "
        f"over half of it since step {since}.",
        keys=(loss.key, "grad_norm", "learning_rate", "mean_token_accuracy", "entropy"),
        certainty=CERTAINTY,
        cause=OPTIMISER,
        advice="Go back to the checkpoint before this step, leave its next batches out, and lower the learning rate.",
        next_check="Look at the batches of this step: broken labels, another source, or a very long sample?",
    )


def _has_risen(loss: Course) -> bool:
    level, _, _, change = _lowest(loss)
    return change.moved and change.shift >= NOISES and loss.late_level >= RISEN * level


def _lowest(loss: Course) -> tuple[float, int, int, Change]:
    """Return the median of the lowest stretch, its first and last step, and how the loss has changed since."""
    rows = max(MINIMUM_BASELINE, loss.values.size // PARTS)
    starts = np.arange(0, loss.values.size - rows + 1, rows)
    medians = np.median(loss.values[: starts.size * rows].reshape(-1, rows), axis=1)
    lowest = int(starts[np.argmin(medians)])
    first, last = int(loss.steps[lowest]), int(loss.steps[lowest + rows - 1])
    return float(medians.min()), first, last, series_change(loss.steps, loss.values, (first, last))


def _spikes(run: Run, loss: Course) -> RuleResult | None:
    places = _spike_places(loss.values)
    if not places.size:
        return None
    return one_finding(
        run,
        ID,
        "note",
        int(loss.steps[places[0]]),
        f"{loss.key} has had {places.size} spike(s), the last at step {loss.steps[places[-1]]} "
        f"({loss.values[places[-1]]:.3g}), and came back each time.",
        keys=(loss.key, "grad_norm", "learning_rate"),
        certainty="In the noise of the run's own differences; a spike that comes back is benign.",
        advice="None is needed; gradient clipping keeps such spikes harmless.",
        next_check="Look at the batch of the last spike.",
    )


def _spike_places(values: Floats) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    differences = np.diff(values)
    noise = 1.4826 * float(np.median(np.abs(differences - np.median(differences))))
    return np.flatnonzero(differences > SPIKE * noise) + 1 if noise > 0 else np.empty(0, dtype=np.intp)
