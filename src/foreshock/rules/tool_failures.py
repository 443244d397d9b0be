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

from foreshock.rules.causes import ENVIRONMENT, TOOL_USE_COLLAPSE
from foreshock.rules.finding import Finding, RuleResult
from foreshock.rules.series import course, held_since, latest, reward_sentence, rows_of, segment_rows, sentences
from foreshock.run import Run

ID = "tool-failures"

KEY = "tools/failure_frequency"

POLICY = ("entropy", "grad_norm", "kl", "completions/mean_length")
"""What moves when the policy itself has changed."""

RISE, RISEN, MOST = 0.3, 0.5, 0.9
"""A rise by the first to the second is a finding; the third is one from the first logs on (heuristics)."""

CRITICAL = 0.8

CERTAINTY = (
    "Its levels are heuristics: it warned at no time in 2,100 simulated healthy runs (benchmarks/series_rules.py)."
)


def check(run: Run) -> RuleResult:
    """Judge the rise since the warm-up, then the level of the latest rows."""
    failures = course(run, KEY)
    if failures is not None and failures.rise >= RISE:
        early, late = float(failures.early.mean()), float(failures.late.mean())
        if RISEN <= late <= 1 and failures.direction == "up":
            since = failures.change.since_step or run.last_step
            what = f"The share of tool calls that fail has risen from {early:.0%} to {late:.0%} since step {since}."
            return RuleResult((_finding(run, "critical" if late >= CRITICAL else "warning", what, since),))
    _, recent = latest(run, KEY)
    if not recent.size or not MOST <= recent.mean() <= 1 + 1e-6:
        return RuleResult()
    steps, values = rows_of(run, KEY)
    since = held_since(steps, values >= MOST)
    what = f"{recent.mean():.0%} of the tool calls fail in the latest rows, nearly all since step {since}."
    return RuleResult((_finding(run, "warning", what, since),))


def _finding(run: Run, severity: str, what: str, since: int) -> Finding:
    judged = {key: found.direction for key in POLICY if (found := course(run, key))}
    moved = [key for key, went in judged.items() if went != "flat"]
    still = [key for key, went in judged.items() if went == "flat"]
    if still and not moved:
        first = f"Policy metrics did not move ({', '.join(still)}): look at the environment first."
        excluded: tuple[str, ...] = (
            "The policy's own metrics are flat: it is unlikely that the policy changed how it calls.",
        )
    else:
        first = f"Policy metrics moved too ({', '.join(moved)}): it may be the policy's calls." if moved else ""
        excluded = ()
    return Finding(
        rule=ID,
        severity=severity,
        steps=(since, run.last_step),
        summary=sentences(what, first, reward_sentence(run)),
        evidence=segment_rows(run, (KEY, "tools/call_frequency", "reward", *POLICY)),
        certainty=CERTAINTY,
        cause=TOOL_USE_COLLAPSE if moved else ENVIRONMENT,
        exclusions=excluded,
        advice="Look at the errors that the tools return. Do not train on episodes whose tools did not work.",
        next_check="Replay ten calls of an early step against the environment as it is now: do they still work?",
    )
