"""The names of the causes, one name for one thing; :mod:`foreshock.causes` ranks them."""

from __future__ import annotations

SUPPORT_MISMATCH = "tool-conditioned support mismatch"
ENGINE_MISMATCH = "engine mismatch"
OPTIMISER = "optimiser instability"
ENTROPY_COLLAPSE = "entropy collapse"
REWARD_HACKING = "reward hacking or mode collapse"
ZERO_SIGNAL = "zero learning signal"
LENGTH_COLLAPSE = "length collapse"
TOOL_USE_COLLAPSE = "tool-use collapse"
ENVIRONMENT = "environment fault"
NUMERICS = "numerics"

ALL = (
    SUPPORT_MISMATCH,
    ENGINE_MISMATCH,
    OPTIMISER,
    ENTROPY_COLLAPSE,
    REWARD_HACKING,
    ZERO_SIGNAL,
    LENGTH_COLLAPSE,
    TOOL_USE_COLLAPSE,
    ENVIRONMENT,
    NUMERICS,
)

STALE_WEIGHTS = "stale weights"
ENGINE_DRIFT = "drift"
TRUNCATED_SUPPORT = "truncated support"
RETOKENISATION = "re-tokenisation"
MASK_ERROR = "mask error"

ENGINE_KINDS = (STALE_WEIGHTS, ENGINE_DRIFT, TRUNCATED_SUPPORT, RETOKENISATION, MASK_ERROR)
"""The kinds of an engine mismatch, as a finding may name itself."""

HIDDEN = "hidden tail growth"
"""The post-tool tail grows while loss, reward, entropy and mean KL, as far as they are logged, do not move."""
