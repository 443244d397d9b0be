"""The result of every statistic that may be impossible to judge."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """A value, the number of observations behind it, and what is to be said against it.

    `reason` is empty exactly when the value can be trusted. The value is NaN exactly when nothing can be judged, and
    then `reason` says why. A number with a reason is a number with a caution, for example an effective sample size
    whose tail is too heavy; such a value is not `ok`, yet it may be shown beside its reason.
    """

    value: float
    n: int
    reason: str = ""

    def __post_init__(self) -> None:
        if math.isnan(self.value) and not self.reason:
            raise ValueError("Diagnostic: the value is NaN, so a reason is expected; none was given. State the reason.")

    @property
    def ok(self) -> bool:
        """True when there is a value and nothing to be said against it."""
        return not self.reason

    @classmethod
    def unknown(cls, n: int, reason: str) -> Diagnostic:
        """A value that cannot be judged, with the reason."""
        return cls(math.nan, n, reason)
