"""What the reward pays for: length, or only not being cut off at a limit."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from typing import Any

import numpy as np
import numpy.typing as npt

from foreshock.rules.cause_names import LENGTH_COLLAPSE, REWARD_HACKING
from foreshock.rules.finding import RuleResult
from foreshock.traces.checks.common import examples, one_finding, percent, together
from foreshock.traces.checks.outcomes import reward
from foreshock.traces.episode import CONTEXT, LENGTH, Episode, Traces
from foreshock.traces.rates import FEWEST, MOVED, SURE, estimate

CAPPED, VERBOSITY = "trace-capped-reward", "trace-verbosity"

CAPPED_SHARE = 0.05
"""Share of the episodes at the length limit from which on their reward is looked at (heuristic)."""

PAID_FOR_LENGTH = 0.5
"""Correlation of length with reward among attempts at one prompt that is a finding (heuristic)."""


def check(traces: Traces) -> RuleResult:
    """Judge the reward against length; without rewards there is nothing to say."""
    return together(_capped(traces), _verbosity(traces))


def _capped(traces: Traces) -> RuleResult:
    """Judge whether the episodes at the length limit are those without reward."""
    cap = _cap(traces)

    def is_capped(episode: Episode) -> bool:
        return episode.termination in (LENGTH, CONTEXT) or (cap is not None and episode.tokens == cap)

    labelled = [episode for episode in traces.episodes if episode.reward is not None]
    capped = [episode for episode in labelled if is_capped(episode)]
    rest = [episode for episode in labelled if not is_capped(episode)]
    share = estimate(labelled, lambda episode: (is_capped(episode), 1))
    first, second = estimate(capped, reward, share=False), estimate(rest, reward, share=False)
    if share is None or first is None or second is None or share.low < CAPPED_SHARE:
        return RuleResult()
    if second.value - first.value < MOVED * math.hypot(first.error, second.error):
        return RuleResult()
    named = "" if cap is None else f" of {cap} tokens (taken for the limit, as so many end there)"
    return one_finding(
        traces,
        CAPPED,
        "warning",
        f"{percent(share.value)} of the episodes end at the length limit{named}, and their mean reward is "
        f"{first.value:.3g} against {second.value:.3g} of the others: the policy is taught by the limit.",
        evidence=(_reward_row("at the limit", capped), _reward_row("others", rest)),
        cause=LENGTH_COLLAPSE,
        advice="Raise the limit, or mask truncated completions (mask_truncated_completions in TRL).",
        next_check="Let ten of the capped episodes run on: do they reach an answer, and which reward?",
    )


def _cap(traces: Traces) -> int | None:
    """Return the largest number of tokens when so many episodes have exactly it that it must be a limit."""
    tokens = Counter(episode.tokens for episode in traces.episodes if episode.tokens is not None)
    if not tokens:
        return None
    largest = max(size for size in tokens if size is not None)
    return largest if tokens[largest] >= max(5, CAPPED_SHARE * tokens.total()) and len(tokens) > 1 else None


def _reward_row(name: str, episodes: list[Episode]) -> dict[str, Any]:
    rewards = [episode.reward for episode in episodes if episode.reward is not None]
    return {
        "episodes": name,
        "number": len(episodes),
        "mean reward": math.fsum(rewards) / len(rewards),
        "largest reward": max(rewards),
        "examples": examples(episodes),
    }


def _verbosity(traces: Traces) -> RuleResult:
    """Judge whether the reward pays for length, among attempts at the same prompt where there are several."""
    groups: dict[tuple[int | None, str], list[Episode]] = defaultdict(list)
    for episode in traces.episodes:
        if episode.reward is not None and traces.size(episode) > 0:
            groups[episode.step, episode.group].append(episode)
    several = [group for group in groups.values() if len(group) > 1]
    pairs = np.concatenate([_centred(traces, group) for group in several], axis=1) if several else np.empty((2, 0))
    degrees = pairs.shape[1] - len(several)
    power = (pairs**2).sum(axis=1)
    if degrees < FEWEST or not power.all():
        return RuleResult()
    correlation = float(pairs[0] @ pairs[1] / math.sqrt(power[0] * power[1]))
    error = (1 - correlation**2) / math.sqrt(degrees)
    if correlation - SURE * error < PAID_FOR_LENGTH:
        return RuleResult()
    return one_finding(
        traces,
        VERBOSITY,
        "warning",
        "The reward pays for length: among attempts at the same prompt, its correlation with the logarithm of the "
        f"length is {correlation:.2f} (standard error {error:.2f}).",
        evidence=_lengths_table(traces, several),
        cause=REWARD_HACKING,
        advice="Take length out of the reward, or compare answers of equal length.",
        next_check="Pad ten short answers with words that say nothing: does the reward rise?",
    )


def _centred(traces: Traces, group: list[Episode]) -> npt.NDArray[np.float64]:
    """Return log length and reward of the episodes of a group, less their means, ``(2, episodes)``."""
    values: npt.NDArray[np.float64] = np.array(
        [[math.log(traces.size(episode)) for episode in group], [episode.reward for episode in group]], float
    )
    values -= values.mean(axis=1, keepdims=True)
    return values


def _lengths_table(traces: Traces, groups: list[list[Episode]]) -> tuple[dict[str, Any], ...]:
    ordered = [sorted(group, key=traces.size) for group in groups]
    rows = []
    for name, place in (("shortest of its prompt", 0), ("longest of its prompt", -1)):
        picked = [group[place] for group in ordered]
        rows.append(
            {
                "episodes": name,
                "number": len(picked),
                "mean length": math.fsum(map(traces.size, picked)) / len(picked),
                "mean reward": math.fsum(episode.reward or 0.0 for episode in picked) / len(picked),
                "examples": examples(picked),
            }
        )
    return tuple(rows)
