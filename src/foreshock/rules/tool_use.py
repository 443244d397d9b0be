"""Tool-use collapse: the policy stops calling its tools.

What: ``tools/call_frequency``, tool calls per completion, falls to a small part of its earlier level.
Why it matters: the skill that the run is to train is gone, and with it the tokens that could bring it back.
Known problems: a policy may learn that it needs no tools. While the reward rises, the finding is a warning at most.
Example: "Tool calls per completion have fallen from 0.8 to 0.02, and stay under half since step 212."
Options: none.
References: Xue et al., "SimpleTIR: end-to-end reinforcement learning for multi-turn tool-integrated reasoning"
(arXiv:2509.02479), for how tool use breaks down.
"""

from __future__ import annotations

import numpy as np

from foreshock.rules.cause_names import TOOL_USE_COLLAPSE
from foreshock.rules.finding import RuleResult
from foreshock.rules.series import Floats, course, direction
from foreshock.rules.statements import heuristic, one_finding, reward_sentence, time_sentence
from foreshock.run import Run

ID = "tool-use-collapse"

NEEDS = "tools/call_frequency"

SEVERITIES = ("warning", "critical")

KEY = "tools/call_frequency"

NON_TRIVIAL = 0.1
"""Calls per completion that the run must once have reached."""

WARNING, CRITICAL = 0.2, 0.05
"""Late level over the highest level of 20 rows (heuristic)."""

STRETCH = 20

CERTAINTY = heuristic(warned=0)


def check(run: Run) -> RuleResult:
    """Compare the late rate of tool calls with the highest that the run has had over 20 rows."""
    calls = course(run, KEY, warm_up=False)
    if calls is None or calls.values.min() < 0:
        return RuleResult()
    peak = highest_stretch(calls.values, STRETCH)
    late = float(calls.values[-STRETCH:].mean())
    if peak < NON_TRIVIAL or late > WARNING * peak:
        return RuleResult(judged=(f"tools are still called ({KEY})",) if peak >= NON_TRIVIAL else ())
    since = int(calls.steps[_last_above(calls.values, peak / 2)])
    critical = late <= CRITICAL * peak and direction(run) != "up"
    return one_finding(
        run,
        ID,
        "critical" if critical else "warning",
        since,
        f"Tool calls per completion have fallen from {peak:.2g} to {late:.2g}, and stay under half since step {since}.",
        time_sentence(calls, 0.0, "0"),
        reward_sentence(run),
        keys=(KEY, "tools/failure_frequency", "reward", "completions/mean_length", "grad_norm"),
        certainty=CERTAINTY,
        cause=TOOL_USE_COLLAPSE,
        advice=(
            "Look at whether calls that failed, or long results, were punished; reward or require a call where the "
            "task needs one."
        ),
        next_check="Give ten prompts that need a tool to the latest checkpoint, and read the first answer.",
    )


def highest_stretch(values: Floats, rows: int) -> float:
    """Return the highest mean over stretches of about so many rows."""
    stretches = max(1, values.size // rows)
    starts = np.arange(stretches) * values.size // stretches
    return float((np.add.reduceat(values, starts) / np.diff(starts, append=values.size)).max())


def _last_above(values: Floats, level: float) -> int:
    """Return the place of the last value above a level."""
    above = np.flatnonzero(values > level)
    return int(above[-1]) if above.size else 0
