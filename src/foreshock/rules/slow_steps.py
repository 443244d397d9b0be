"""Slow steps: a step takes much longer than it did.

What: ``step_time`` lies at a multiple of its early level, or the logged throughput at a part of it.
Why it matters: an engine that restarts, a tool server that times out, a leak or a full disk shows here first. It also
costs money.
Known problems: longer completions take longer; where the mean length grew as much, nothing is said. Shared machines
vary. Below ×3 it is a note.
Example: "step_time has grown from 41 to 139 (×3.4) since step 310, and the completions have not become longer."
Options: none.
References: none.
"""

from __future__ import annotations

from foreshock.rules.cause_names import ENVIRONMENT
from foreshock.rules.finding import RuleResult
from foreshock.rules.series import course
from foreshock.rules.statements import heuristic, one_finding
from foreshock.run import Run

ID = "slow-steps"

NEEDS = "step_time or throughput"

SEVERITIES = ("note", "warning")

TIME, THROUGHPUT = "step_time", "throughput"

NOTED, WARNED = 1.5, 3.0
"""Late over early step time, divided by the growth of the mean length (heuristics)."""

CERTAINTY = heuristic(warned=0)


def check(run: Run) -> RuleResult:
    """Compare late with early step times, beside the lengths."""
    for key, wanted in ((TIME, "up"), (THROUGHPUT, "down")):
        speed = course(run, key)
        if speed is None or speed.early_level <= 0 or speed.late_level <= 0:
            continue
        slower = speed.growth if key == TIME else 1 / speed.growth
        longer = 1.0
        if key == TIME and (length := course(run, "completions/mean_length")) is not None and length.growth > 1:
            longer = length.growth
        if slower / longer < NOTED or speed.direction != wanted:
            return RuleResult(judged=(f"steps take as long as at the start ({key})",))
        since = speed.since
        return one_finding(
            run,
            ID,
            "warning" if slower / longer >= WARNED else "note",
            since,
            f"{key} has gone from {speed.early_level:.3g} to {speed.late_level:.3g} (steps ×{slower:.1f} slower) since "
            f"step {since}"
            + (f", and the mean length only ×{longer:.1f}." if longer > 1 else ", and completions are no longer."),
            keys=(key, "completions/mean_length", "tools/failure_frequency", "tools/call_frequency"),
            first=int(speed.steps[0]),
            certainty=CERTAINTY,
            cause=ENVIRONMENT,
            advice="Look at the sampler, the tools and the disk around this step: restarts, time-outs, swapping.",
            next_check="Time one step's parts: generation, tool calls, scoring, update. Which one grew?",
        )
    return RuleResult()
