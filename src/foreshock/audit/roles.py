"""Roles: the messages of a rollout do not follow each other as a chat with tools does.

What: a prompt ends with the policy's own message, a response does not begin with one, or a tool result answers no call.
Why it matters: a template that renders a wrong role puts text into the mask that the policy never said, or hides from
it what the tool said.
Known problems: it needs messages with roles; plain text has none. A prompt that ends with the policy's message is right
where the policy is to continue it.
Example: "Of 512 rollouts, 40 have a tool result that answers no call."
Options: none.
References: none.
"""

from __future__ import annotations

from collections import Counter

from foreshock.rules.finding import CannotJudge, Finding, RuleResult
from foreshock.traces import Episode, Traces

ID = "audit-roles"

NEEDS = "traces with messages"

SEVERITIES = ("note", "warning")

MANY = 0.01
"""Share of the rollouts from which on this is a warning (heuristic)."""


def check(traces: Traces) -> RuleResult:
    """Judge the order of roles in every rollout that has messages."""
    told = [episode for episode in traces.episodes if not episode.is_text]
    if not told:
        reason = "the rollouts are plain text, which holds no roles."
        return RuleResult(cannot_judge=(CannotJudge(ID, reason, "Log the messages."),))
    faults = Counter(fault for episode in told for fault in _faults(episode))
    wrong = sum(bool(_faults(episode)) for episode in told)
    if not wrong:
        return RuleResult(judged=("roles follow each other",))
    finding = Finding(
        rule=ID,
        severity="warning" if wrong >= MANY * len(told) else "note",
        summary=f"Of {len(told):,} rollouts, {wrong:,} have roles that do not follow each other as they should.",
        steps=traces.steps or (0, 0),
        evidence=tuple({"what": fault, "rollouts": count} for fault, count in faults.most_common()),
        certainty="Counted, not estimated; whether a prompt is to be continued, the trace does not say.",
        advice="Render one such rollout with the chat template, and read the text that the policy was given.",
    )
    return RuleResult((finding,))


def _faults(episode: Episode) -> list[str]:
    found = []
    if episode.prompt and episode.prompt[-1]["role"] == "assistant":
        found.append("the prompt ends with a message of the policy")
    if episode.response and episode.response[0]["role"] != "assistant":
        found.append(f"the response begins with a message of the role {episode.response[0]['role']}")
    called = False
    for message in (*episode.prompt, *episode.response):
        if message["role"] == "tool" and not called:
            found.append("a tool result answers no call")
            break
        called = called or message["role"] == "assistant"
    return found
