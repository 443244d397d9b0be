"""Rules: one rule, one file."""

from __future__ import annotations

from foreshock.rules import (
    entropy_change,
    gradient_tail,
    kl_runaway,
    length_at_cap,
    monitor_errors,
    no_comparator,
    non_finite,
    reward_hacking,
    tail_growth,
    tool_failures,
    tool_use,
    update_blocked,
    zero_signal,
)

OVER_SERIES = (
    zero_signal,
    update_blocked,
    kl_runaway,
    gradient_tail,
    entropy_change,
    length_at_cap,
    reward_hacking,
    tool_use,
    tool_failures,
)
"""The rules that read logged scalars only."""

BUILT_IN = (tail_growth, non_finite, *OVER_SERIES, no_comparator, monitor_errors)
"""In the order in which their findings are shown when severities are equal."""
