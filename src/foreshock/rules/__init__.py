"""Rules: one rule, one file.

What they share: a logged series and its early and late level (``series``), the tail of a run (``tail_course``,
``tail_effect``, ``attribution``), what they say (``statements``, ``aggregates``, ``cause_names``) and what they return
(``finding``). Rules that a user declares are read by ``declared`` and ``conditions``; ``page`` makes the pages of all.
"""

from __future__ import annotations

from foreshock.rules import (
    clip_fraction,
    dead_run,
    diversity,
    effective_sample_size,
    entropy_change,
    environment_fault,
    gradient_tail,
    kl_runaway,
    kto_balance,
    late_drift,
    length_at_cap,
    length_change,
    likelihood_displacement,
    loss_plateau,
    loss_rise,
    margin_collapse,
    mismatch,
    mismatch_slices,
    monitor_errors,
    no_comparator,
    non_finite,
    overfitting,
    preference_chance,
    reward_concentration,
    reward_hacking,
    reward_length,
    slow_steps,
    tail_growth,
    tool_failures,
    tool_use,
    update_blocked,
    void_turns,
    zero_signal,
)

OVER_SERIES = (
    dead_run,
    zero_signal,
    update_blocked,
    mismatch,
    environment_fault,
    kl_runaway,
    gradient_tail,
    clip_fraction,
    late_drift,
    entropy_change,
    diversity,
    reward_concentration,
    length_at_cap,
    length_change,
    reward_hacking,
    reward_length,
    tool_use,
    tool_failures,
    void_turns,
    loss_rise,
    overfitting,
    preference_chance,
    margin_collapse,
    likelihood_displacement,
    kto_balance,
    loss_plateau,
    effective_sample_size,
    slow_steps,
)
"""The rules that read logged scalars only."""

BUILT_IN = (tail_growth, mismatch_slices, non_finite, *OVER_SERIES, no_comparator, monitor_errors)
"""In the order in which their findings are shown when severities are equal."""
