"""Tool failures: most tool calls fail.

What: ``tools/failure_frequency``, the share of tool calls that fail, has risen to a high level, or is high from the
first logs on.
Why it matters: rewards of episodes without working tools teach the policy to live without them.
Known problems: a policy that forgets how to call a tool looks the same in this key alone. Whether entropy, gradient
norm, KL and length moved with it tells them apart, and is said.
Example: "The share of tool calls that fail has risen from 9% to 84% since step 131. Policy metrics did not move
(entropy, grad_norm, kl, completions/mean_length): look at the environment first."
Options: none.
References: none beyond public reports of environment faults that were trained on as rewards of 0.
"""

from __future__ import annotations

from foreshock.rules.cause_names import ENVIRONMENT, TOOL_USE_COLLAPSE
from foreshock.rules.finding import RuleResult
from foreshock.rules.series import course, held_since, latest, rows_of
from foreshock.rules.statements import heuristic, one_finding, policy_metrics, reward_sentence
from foreshock.run import Run

ID = "tool-failures"

NEEDS = "tools/failure_frequency"

SEVERITIES = ("warning", "critical")

KEY = "tools/failure_frequency"

RISE, RISEN, MOST = 0.3, 0.5, 0.9
"""A rise by the first to the second is a finding; the third is one from the first logs on (heuristics)."""

CRITICAL = 0.8

CERTAINTY = heuristic(warned=0)


def check(run: Run) -> RuleResult:
    """Judge the rise since the warm-up, then the level of the latest rows."""
    failures = course(run, KEY)
    if failures is not None and failures.rise >= RISE:
        early, late = float(failures.early.mean()), float(failures.late.mean())
        if RISEN <= late <= 1 and failures.direction == "up":
            since = failures.since
            what = f"The share of tool calls that fail has risen from {early:.0%} to {late:.0%} since step {since}."
            return _result(run, "critical" if late >= CRITICAL else "warning", what, since)
    _, recent = latest(run, KEY)
    if not recent.size or not 0 <= recent.mean() <= 1 + 1e-6:
        return RuleResult()
    if recent.mean() < MOST:
        return RuleResult(judged=(f"most tool calls work ({KEY})",))
    steps, values = rows_of(run, KEY)
    since = held_since(steps, values >= MOST)
    what = f"{recent.mean():.0%} of the tool calls fail in the latest rows, nearly all since step {since}."
    return _result(run, "warning", what, since)


def _result(run: Run, severity: str, what: str, since: int) -> RuleResult:
    moved, still = policy_metrics(run)
    first, excluded = "", ""
    if moved:
        first = f"Policy metrics moved too ({', '.join(moved)}): it may be the policy's calls."
    elif still:
        first = f"Policy metrics did not move ({', '.join(still)}): look at the environment first."
        excluded = "The policy's own metrics are flat: it is unlikely that the policy changed how it calls."
    return one_finding(
        run,
        ID,
        severity,
        since,
        what,
        first,
        reward_sentence(run),
        keys=(KEY, "tools/call_frequency", "reward", *moved, *still),
        certainty=CERTAINTY,
        cause=TOOL_USE_COLLAPSE if moved else ENVIRONMENT,
        exclusions=(excluded,),
        advice="Look at the errors that the tools return. Do not train on episodes whose tools did not work.",
        next_check="Replay ten calls of an early step against the environment as it is now: do they still work?",
    )
