"""Aligned per-token tensors of one micro-batch, and the slices in which its response tokens stand.

Everything here is written with operations that NumPy arrays and torch tensors share, so this module imports neither.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from foreshock.errors import LayoutError

TEXT_ONLY = "text_only"
POST_TOOL = "post_tool"
SLICES = (TEXT_ONLY, POST_TOOL)

POLICY_REF = "policy/ref"
POLICY_OLD = "policy/old"
OLD_ROLLOUT = "old/rollout"
POLICY_ROLLOUT = "policy/rollout"
PAIRS = (POLICY_REF, POLICY_OLD, OLD_ROLLOUT, POLICY_ROLLOUT)
"""Pairs ``numerator/denominator`` whose log-ratio log π_numerator − log π_denominator is recorded."""

DOUBTED = -math.log(2)
"""Nats. A token of which one policy is certain (0.0) and the other gives less than one half was not scored by the
first: 0.0 is what trainers write where they have no log-probability (heuristic)."""

Array = Any
"""A NumPy array or a torch tensor."""


@dataclass(frozen=True, slots=True)
class TokenBatch:
    """One micro-batch of completions, every tensor of shape ``(B, T)`` and on one device.

    ``response_mask``: 1 where the policy sampled the token, 0 on observation tokens and padding.
    ``observation_mask``: 1 where the token is a tool result, user or environment text inside the completion.
    ``log_probs``: log-probabilities in nats by the policy they belong to: ``policy``, ``old``, ``rollout`` or ``ref``.
    ``prompt_has_observation``: shape ``(B,)``, 1 where the prompt already holds a tool result.
    ``token_ids``: ids of the tokens, ``(B, T)``, only needed to name the tokens that make a tail.
    ``user_slices``: slice ids that the user gave, ``(B, T)`` of integers, −1 for "in no slice of mine".
    ``tools``: numbers of tools, ``(B, 1 + K)`` of integers, only needed to name the tools behind a tail: of the last
    tool result in the prompt, then of the last one in each stretch of observation tokens; −1 where it is not known.

    Raises:
        LayoutError: two tensors do not have the same shape, or not the same number of rows.
    """

    response_mask: Array
    observation_mask: Array
    log_probs: dict[str, Array] = field(default_factory=dict)
    prompt_has_observation: Array | None = None
    token_ids: Array | None = None
    user_slices: Array | None = None
    tools: Array | None = None

    def __post_init__(self) -> None:
        shape = tuple(self.response_mask.shape)
        others = {
            "observation_mask": self.observation_mask,
            "token_ids": self.token_ids,
            "user_slices": self.user_slices,
            **self.log_probs,
        }
        for name, tensor in others.items():
            if tensor is not None and tuple(tensor.shape) != shape:
                raise LayoutError(
                    f"{name} has shape {tuple(tensor.shape)}, but response_mask has shape {shape}. "
                    "Pass tensors that are aligned token by token, (B, T)."
                )
        for name, tensor in {"prompt_has_observation": self.prompt_has_observation, "tools": self.tools}.items():
            if tensor is not None and tensor.shape[0] != shape[0]:
                raise LayoutError(
                    f"{name} has {tensor.shape[0]} rows, but response_mask has {shape[0]}. Pass one row a completion."
                )

    def slice_ids(self) -> Array:
        """Return where each token stands, ``(B, T)``, boolean: false for ``text_only``, true for ``post_tool``.

        A token is post-tool once an observation token stands before it in its row, or from the first token of a row
        whose prompt already holds a tool result. Ids on tokens outside the response mask have no meaning.
        """
        kind = self.observation_mask.dtype
        # Adding up in the mask's own type spares a conversion; booleans have no sums, and those of one byte wrap to 0.
        is_small = any(name in str(kind) for name in ("bool", "int8"))
        seen = self.observation_mask.cumsum(1, **({} if is_small else {"dtype": kind}))
        if self.prompt_has_observation is not None:
            seen = seen + self.prompt_has_observation.reshape(-1, 1)
        return seen.astype(bool) if hasattr(seen, "astype") else seen.bool()  # several times faster than comparing

    def pairs(self) -> dict[str, tuple[Array, Array]]:
        """Return the ``(numerator, denominator)`` log-probabilities of every recorded pair that this batch has."""
        found = {}
        for pair in PAIRS:
            numerator, denominator = pair.split("/")
            if numerator in self.log_probs and denominator in self.log_probs:
                found[pair] = (self.log_probs[numerator], self.log_probs[denominator])
        if OLD_ROLLOUT in found:
            found.pop(POLICY_ROLLOUT, None)
        return found
