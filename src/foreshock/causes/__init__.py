"""Causes: what the findings of all rules and the run itself say together."""

from __future__ import annotations

from foreshock.causes.cause import Cause
from foreshock.causes.ranking import weigh_causes

__all__ = ["Cause", "weigh_causes"]
