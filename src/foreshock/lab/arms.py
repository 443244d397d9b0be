"""The arms of the experiment: what each one changes of the fixed arm. No torch here, so that commands can list them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Arm:
    """One arm; the defaults are the fixed arm.

    `redirects`, `free_forms`: what the tool does, see `World`. All bounds are on |r| of policy/ref, in nats.
    `kl_target`: the mean KL to which the one KL weight is steered, in nats per token.
    `refresh_every`: steps after which the reference becomes a copy of the policy, again and again.
    `tail_bound`: a post-tool token pays 1 for every nat that its |r| exceeds the bound by.
    `masked_beyond`: a token whose |r| exceeds the bound has no policy gradient.
    `post_tool_frozen`: tokens after a tool result have no gradient at all.
    """

    description: str
    redirects: bool = True
    free_forms: bool = True
    kl_target: float | None = None
    refresh_every: int | None = None
    tail_bound: float | None = None
    masked_beyond: float | None = None
    post_tool_frozen: bool = False


ARMS = {
    "fixed": Arm("a frozen reference and one KL weight for all tokens"),
    "drift_aware": Arm("post-tool tokens pay for what their |r| exceeds 0.55 nats by", tail_bound=0.55),
    "constrained": Arm("the tool follows redirects itself and answers in one form", redirects=False, free_forms=False),
    "adaptive_kl": Arm("one KL weight, steered to a mean KL of 0.03 nats", kl_target=0.03),
    "refresh": Arm("the reference becomes a copy of the policy every 40 steps", refresh_every=40),
    "free_form": Arm("the tool follows redirects itself and answers in several forms", redirects=False),
    "schema": Arm("the tool redirects, each kind of answer in one form", free_forms=False),
    "frozen": Arm("tokens after a tool result have no gradient", post_tool_frozen=True),
    "masked": Arm("tokens whose |r| exceeds 1.2 nats have no policy gradient", masked_beyond=1.2),
}
"""By name. "Drift-aware" is our definition; the published account names the contrast with a fixed baseline only."""
