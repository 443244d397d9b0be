"""The one experiment that tells two causes apart, and how to read its result."""

from __future__ import annotations

from collections.abc import Mapping

from foreshock.causes.cause import Cause
from foreshock.rules.cause_names import (
    ENGINE_DRIFT,
    ENGINE_MISMATCH,
    ENTROPY_COLLAPSE,
    ENVIRONMENT,
    LENGTH_COLLAPSE,
    MASK_ERROR,
    NUMERICS,
    OPTIMISER,
    RETOKENISATION,
    REWARD_HACKING,
    STALE_WEIGHTS,
    SUPPORT_MISMATCH,
    TOOL_USE_COLLAPSE,
    TRUNCATED_SUPPORT,
    ZERO_SIGNAL,
)

ZERO_RATE = "Take 20 steps at learning rate 0 from the last checkpoint: what still grows comes from the engine, "

PAIRS: Mapping[frozenset[str], str] = {
    frozenset(pair): check
    for *pair, check in (
        (SUPPORT_MISMATCH, ENGINE_MISMATCH, ZERO_RATE + "a tail that stays as it is was stretched by the updates."),
        (
            SUPPORT_MISMATCH, OPTIMISER,
            "Go back to a checkpoint from before the growth and train 50 steps on prompts without tools: the optimiser "
            "stretches their tail too, a support mismatch does not.",
        ),
        (
            SUPPORT_MISMATCH, REWARD_HACKING,
            "Evaluate the checkpoints before and after the growth by a reward that was not trained on: it falls under "
            "reward hacking, and has not moved yet under a support mismatch.",
        ),
        (
            SUPPORT_MISMATCH, ENVIRONMENT,
            "Replay the recorded tool results of an early step instead of calling the tools: growth that goes on does "
            "not come from the environment.",
        ),
        (ENGINE_MISMATCH, OPTIMISER, ZERO_RATE + "what stops comes from the updates."),
        (
            ENGINE_MISMATCH, NUMERICS,
            "Score one batch in float32 with the sampler's and the trainer's weights: a difference that vanishes was "
            "rounding, one that stays is the engine's.",
        ),
        (
            OPTIMISER, NUMERICS,
            "Run the batch of the first bad step again in float32: values that stay finite point to the numerics, ones "
            "that explode again to the update.",
        ),
        (
            OPTIMISER, REWARD_HACKING,
            "Repeat the run from the checkpoint before with another seed: hacking finds the same way again, an "
            "unstable optimiser fails at another step.",
        ),
        (
            OPTIMISER, ENTROPY_COLLAPSE,
            "Repeat the steps from the checkpoint before at half the learning rate: an unstable optimiser holds, an "
            "entropy collapse comes later and all the same.",
        ),
        (
            OPTIMISER, ENVIRONMENT,
            "Run ten episodes with a checkpoint from before the change: a reward as low as now is the environment's.",
        ),
        (
            ENTROPY_COLLAPSE, REWARD_HACKING,
            "Score one batch of the latest step by a reward that was not trained on: a low score beside a high trained "
            "reward is hacking, equal scores of nearly equal texts are an entropy collapse.",
        ),
        (
            ENTROPY_COLLAPSE, ZERO_SIGNAL,
            "Sample one batch at temperature 1.3: groups whose rewards differ again point to the entropy, equal ones "
            "to the reward or the prompts.",
        ),
        (
            ZERO_SIGNAL, REWARD_HACKING,
            "Read one group of the latest step: different texts with one reward are a reward without signal, equal "
            "texts a mode collapse.",
        ),
        (
            ZERO_SIGNAL, LENGTH_COLLAPSE,
            "Sample one batch with the completion limit doubled: rewards that differ then were cut off by the limit.",
        ),
        (
            ZERO_SIGNAL, ENVIRONMENT,
            "Send a known good and a known bad answer through the grader: one reward for both is the grader's fault.",
        ),
        (
            LENGTH_COLLAPSE, REWARD_HACKING,
            "Score the same completions with their ends cut off: a reward that falls with the length is paid for it.",
        ),
        (
            TOOL_USE_COLLAPSE, ENVIRONMENT,
            "Replay ten calls of an early step against the environment as it is now: calls that fail are the "
            "environment's fault, calls that work leave the policy.",
        ),
        (
            TOOL_USE_COLLAPSE, LENGTH_COLLAPSE,
            "Double the completion limit for one batch: calls that come back were cut off before they were made.",
        ),
        (
            ENVIRONMENT, REWARD_HACKING,
            "Run ten episodes with an early checkpoint: a reward that differs from that of its own time is the "
            "environment's.",
        ),
    )
}  # fmt: skip
"""By pair of causes, in any order."""

ALONE: Mapping[str, str] = {
    SUPPORT_MISMATCH: (
        "Take 20 steps on the same prompts with tool results in a fixed form: a support mismatch stops growing."
    ),
    ENGINE_MISMATCH: ZERO_RATE + "what stops does not.",
    OPTIMISER: "Repeat the last 100 steps with another seed at half the learning rate: an unstable optimiser holds.",
    ENTROPY_COLLAPSE: "Count the distinct completions of one group at temperature 1: one or two are a collapse.",
    REWARD_HACKING: "Evaluate an early and the latest checkpoint by a reward that was not trained on.",
    ZERO_SIGNAL: "Read one group of completions with its rewards: are the texts equal, or only their rewards?",
    LENGTH_COLLAPSE: "Sample one batch with the completion limit doubled, and count those that end by themselves.",
    TOOL_USE_COLLAPSE: "Give ten prompts that need a tool to an early and to the latest checkpoint.",
    ENVIRONMENT: "Replay ten recorded episodes of an early step: other results are the environment's.",
    NUMERICS: "Run the batch of the first bad step again in float32: values that stay finite point to the numerics.",
}
"""Where a pair has no row of its own: what confirms or refutes the cause by itself."""

KINDS: Mapping[str, str] = {
    ENGINE_DRIFT: ZERO_RATE + "what stops comes from the updates.",
    STALE_WEIGHTS: (
        "Send the weights to the sampler again, reset its caches and score one batch: a difference that falls back was "
        "that of stale weights."
    ),
    TRUNCATED_SUPPORT: (
        "Sample one batch without top-p, top-k and min-p: a difference that vanishes was the mass that they cut off."
    ),
    RETOKENISATION: (
        "Compare the token ids that were sampled with those that are trained, turn by turn: any difference after a "
        "tool result is re-tokenisation."
    ),
    MASK_ERROR: (
        "Print one trained row with its mask: tool results inside the mask, or log-probabilities of exactly 0, are a "
        "mask error."
    ),
}
"""The kinds of an engine mismatch have checks that are sharper than those of its pairs."""


def separating_check(cause: Cause, rival: str) -> str:
    """Return the experiment for a cause and its strongest rival; "" for a cause that no table knows."""
    if cause.kind in KINDS:
        return KINDS[cause.kind]
    return PAIRS.get(frozenset((cause.name, rival)), "") or ALONE.get(cause.name, "")
