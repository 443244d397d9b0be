"""Audit of rollouts: is what the trainer trains on what the policy did? Masks, zeros, roles, groups, tokens.

A token dump is read once, file by file. Of traces without token ids, such as TRL's completions, roles and group sizes
are judged.
"""

from __future__ import annotations

from collections import Counter, defaultdict

from foreshock.audit import forced_tokens, group_sizes, mask, placeholders, retokenisation, roles
from foreshock.audit.tally import Tally
from foreshock.errors import ReadError
from foreshock.rules import non_finite
from foreshock.rules.finding import CannotJudge, RuleResult
from foreshock.sources.dumps.collect import REPEATED, UNREADABLE
from foreshock.sources.dumps.formats import Dump
from foreshock.sources.progress import tracked
from foreshock.traces import Traces

ON_TOKENS = (mask, placeholders, retokenisation, forced_tokens)
"""Checks of a token dump, in the order in which their findings are shown when severities are equal."""

CHECKS = (*ON_TOKENS, group_sizes, roles)
"""Every check; the rule on values that are not finite belongs to the diagnosis as well."""

NO_TOKENS = CannotJudge(
    mask.ID,
    "traces hold no token ids, masks or log-probabilities, so what is trained cannot be compared with what was done.",
    "Audit a token dump of the run, see docs/sources.md.",
)


def check_dump(dump: Dump, skipped: Counter[str]) -> list[RuleResult]:
    """Judge a token dump by every check. What was read but not used is counted in ``skipped``.

    Raises:
        ReadError: no file of the dump can be read.
        MissingExtra: its format needs a package that is not installed.
    """
    tally, reasons = Tally(), []
    skipped.update(dump.skipped)
    for path in tracked(dump.files, len(dump.files), "files"):
        try:
            tally.add_file(list(dump.format.read(path, skipped)), skipped)
        except ReadError as error:
            skipped[UNREADABLE] += 1
            reasons.append(str(error))
    if not tally.steps:
        reason = f" The first reason: {reasons[0]}" if reasons else ""
        raise ReadError(f"{str(dump.path)!r} is a {dump.format.name} without a response token.{reason}")
    if tally.repeated:
        skipped[REPEATED] += tally.repeated
    results = [part.check(tally) for part in ON_TOKENS]
    return [*results, non_finite.check(tally.run()), group_sizes.check(tally.groups)]


def check_traces(traces: Traces) -> list[RuleResult]:
    """Judge traces of an agent by the checks that need no token ids."""
    groups: dict[int, Counter[int]] = defaultdict(Counter)
    numbers: dict[str, int] = {}
    for episode in traces.episodes:
        if episode.group and episode.step is not None:
            groups[episode.step][numbers.setdefault(episode.group, len(numbers))] += 1
    return [roles.check(traces), group_sizes.check(groups), RuleResult(cannot_judge=(NO_TOKENS,))]


__all__ = ["CHECKS", "check_dump", "check_traces"]
