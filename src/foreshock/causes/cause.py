"""A cause, with what speaks for and against it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Cause:
    """One possible cause of what was found in a run.

    ``name`` is one of :mod:`foreshock.rules.cause_names`, or what a user's rule calls it. ``kind`` tells apart the
    kinds of one cause where the findings do, such as ``stale weights`` of an engine mismatch. ``evidence_for`` and
    ``evidence_against`` are sentences with the numbers that they rest on. ``findings``: the rules that speak for it.
    ``separating_check``: the one experiment that would separate it from ``rival``, its strongest. ``score`` counts the
    evidence as :func:`foreshock.causes.weigh_causes` says; it orders causes and is no probability.
    """

    name: str
    evidence_for: tuple[str, ...] = ()
    evidence_against: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()
    separating_check: str = ""
    rival: str = ""
    kind: str = ""
    score: int = 0

    def __str__(self) -> str:
        return f"{self.name} ({self.kind})" if self.kind else self.name

    def to_dict(self) -> dict[str, Any]:
        """Return the cause as plain values, ready for JSON."""
        return asdict(self)
