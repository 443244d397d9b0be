"""Ranking causes by counted evidence."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import replace

from foreshock.causes.cause import Cause
from foreshock.causes.checks import separating_check
from foreshock.causes.signs import Facts
from foreshock.causes.table import TABLE, Signs
from foreshock.rules.cause_names import ENGINE_KINDS
from foreshock.rules.finding import SEVERITIES, Finding
from foreshock.run import Run

NAMED, FITS = 2, 1
"""What a finding counts for the cause that it names, and for one that it fits too."""

_END_OF_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z0-9])")


def weigh_causes(run: Run, findings: Sequence[Finding]) -> tuple[tuple[Cause, ...], tuple[Cause, ...]]:
    """Return the possible causes of what was found, likeliest first, and those that the run speaks against.

    The score is a count and no probability. A finding of warning or critical severity counts 2 for the cause that it
    names and 1 for each cause that it fits as well; each sign of :data:`foreshock.causes.table.TABLE` that the run
    shows counts 1 for its cause, or takes 1 away. Equal scores are ordered by the worst severity, then by the table.

    A cause is listed when a finding names it, or fits it and the score is above zero. So a run without warnings has no
    causes, and a sign alone makes none. Second are returned the rivals of listed causes that have evidence against
    them and none for them but findings that they merely fit.
    """
    worth = [finding for finding in findings if finding.severity != "note"]
    if not worth:
        return (), ()
    facts = Facts(run, worth)
    others = dict.fromkeys(finding.cause for finding in worth if finding.cause and finding.cause not in TABLE)
    weighed = [_weigh(name, facts) for name in (*TABLE, *others)]
    listed = [cause for cause in weighed if _is_listed(cause, worth)]
    listed.sort(key=lambda cause: (-cause.score, -_severity(cause, worth)))
    rivals = {rival for cause in listed for rival in _signs(cause.name).rivals}
    excluded = tuple(
        cause
        for cause in weighed
        if cause.name in rivals and cause not in listed and cause.evidence_against and not _has_signs(cause)
    )
    impossible = {name for name, signs in TABLE.items() if any(sign(facts) for sign in signs.rules_out)}
    return tuple(_separated(cause, listed, excluded, impossible) for cause in listed), excluded


def _weigh(name: str, facts: Facts) -> Cause:
    signs = _signs(name)
    naming = [finding for finding in facts.findings if finding.cause == name]
    fitting = [finding for finding in facts.findings if finding.cause != name and finding.rule in signs.fits]
    shown = tuple(filter(None, (sign(facts) for sign in signs.speaks_for)))
    against = tuple(filter(None, (sign(facts) for sign in (*signs.rules_out, *signs.against))))
    return Cause(
        name=name,
        kind=next((finding.name for finding in naming if finding.name in ENGINE_KINDS), ""),
        evidence_for=(*map(_said, naming), *map(_said, fitting), *shown),
        evidence_against=against,
        findings=tuple(dict.fromkeys(finding.rule for finding in (*naming, *fitting))),
        score=NAMED * len(naming) + FITS * len(fitting) + len(shown) - len(against),
    )


def _signs(name: str) -> Signs:
    """Return the row of a cause; an empty one for a cause that only a user's rule names."""
    return TABLE.get(name, Signs((), (), (), ()))


def _said(finding: Finding) -> str:
    """Return the first sentence of a finding, with the rule that says it."""
    return f"{finding.rule}: {_END_OF_SENTENCE.split(finding.summary, maxsplit=1)[0]}"


def _is_listed(cause: Cause, findings: Sequence[Finding]) -> bool:
    return any(finding.cause == cause.name for finding in findings) or (bool(cause.findings) and cause.score > 0)


def _has_signs(cause: Cause) -> bool:
    """Say whether more speaks for a cause that no finding names than findings that it fits as well."""
    return len(cause.evidence_for) > len(cause.findings)


def _severity(cause: Cause, findings: Sequence[Finding]) -> int:
    return max(SEVERITIES.index(finding.severity) for finding in findings if finding.rule in cause.findings)


def _separated(cause: Cause, listed: Sequence[Cause], excluded: Sequence[Cause], impossible: Collection[str]) -> Cause:
    """Add the strongest rival, and the experiment that would tell the two apart."""
    others = [other.name for other in listed if other.name != cause.name]
    usual = [name for name in _signs(cause.name).rivals if name not in impossible]
    spoken_against = {other.name for other in excluded}
    rival = next((name for name in (*others, *usual) if name not in spoken_against), *usual[:1] or ("",))
    return replace(cause, rival=rival, separating_check=separating_check(cause, rival))
