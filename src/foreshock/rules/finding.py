"""What a rule says of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

SEVERITIES = ("note", "warning", "critical")
"""From harmless to harmful. A note never changes the verdict."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a rule found in a run.

    ``steps``: the first and the last optimizer step that it speaks of. ``slice``: the slice it concerns, or "".
    ``name``: what the failure is called, where it has a name of its own, or "".
    ``evidence``: rows of one table, each a mapping from column to value, in the order in which to show them.
    ``tokens``: a second table, of the tokens that make the tail.
    ``certainty``: how sure the rule is: the rate of false alarms of its level, or that it is a heuristic.
    ``cause``: the likeliest cause in the words of the documentation, "" when the rule knows none.
    ``exclusions``: what the evidence speaks against, one sentence each.
    ``next_check``: the one cheap check that would confirm or refute the finding.
    """

    rule: str
    severity: str
    summary: str
    steps: tuple[int, int]
    slice: str = ""
    evidence: tuple[Mapping[str, Any], ...] = ()
    tokens: tuple[Mapping[str, Any], ...] = ()
    certainty: str = ""
    cause: str = ""
    exclusions: tuple[str, ...] = ()
    advice: str = ""
    next_check: str = ""
    name: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the finding as plain values, ready for JSON."""
        plain: dict[str, Any] = _plain(asdict(self))
        return plain


@dataclass(frozen=True, slots=True)
class CannotJudge:
    """A rule lacks what it needs: what is missing, and how to get it."""

    rule: str
    reason: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.rule}: {self.reason}" + (f" {self.remedy}" if self.remedy else "")


@dataclass(frozen=True, slots=True)
class RuleResult:
    """Findings of one rule, what it could not judge, and what it looked at and found in order.

    ``judged`` holds short phrases such as ``no KL runaway (kl)``. A rule whose keys are not logged, or not for long
    enough, leaves all three empty: it says nothing.
    """

    findings: tuple[Finding, ...] = ()
    cannot_judge: tuple[CannotJudge, ...] = ()
    judged: tuple[str, ...] = ()


def _plain(value: Any) -> Any:
    """Turn the NumPy numbers that a rule may have put into steps and tables into Python's."""
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map(_plain, value))
    return value.item() if isinstance(value, np.generic) else value
