"""Rules: one rule, one file."""

from __future__ import annotations

from foreshock.rules import monitor_errors, no_comparator, non_finite, tail_growth

BUILT_IN = (tail_growth, non_finite, no_comparator, monitor_errors)
"""In the order in which their findings are shown when severities are equal."""
