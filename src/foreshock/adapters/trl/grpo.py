"""Where the per-token log-probabilities of a GRPOTrainer are read.

Three bound methods of the trainer object are wrapped; no class is changed and no extra forward pass is made:
``_compute_loss`` gives the micro-batch, ``_get_per_token_logps_and_entropies`` the policy's log-probabilities that the
loss is computed from, and ``_generate_and_score_completions`` the prompts, of which it marks those that already hold a
tool result. Read from TRL 1.14 to 1.16, where the names and meanings of these tensors are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from foreshock.batch import TokenBatch
from foreshock.errors import InputError

PROMPT_KEY = "foreshock_prompt_has_observation"
"""Key under which the mark travels through TRL's shuffle and split, shape ``(B,)``; no part of TRL reads it."""

POLICY_KEY = "policy_log_probs"
"""Key under which a slice function finds the policy's log-probabilities, ``(B, T)`` in nats, beside the micro-batch."""

LOG_PROBS = {
    "old": "old_per_token_logps",
    "ref": "ref_per_token_logps",
    "rollout": "sampling_per_token_logps",
}
"""Names of the comparators' log-probabilities in a micro-batch, each ``(B, T)`` in nats, present or not."""

Inputs = Mapping[str, Any]
SliceFunction = Callable[[Inputs], torch.Tensor]


class LossTap:
    """Hands every training micro-batch and the policy's log-probabilities, ``(B, T)`` and detached, to ``deliver``.

    The log-probabilities are None when the loss did not compute any that carry a gradient. ``deliver`` is called once
    a micro-batch, after its loss, and must not raise.
    """

    def __init__(self, trainer: Any, deliver: Callable[[Inputs, torch.Tensor | None], None]) -> None:
        self._trainer = trainer
        self._deliver = deliver
        self._policy: torch.Tensor | None = None
        self._inside_loss = False
        self._compute_loss = trainer._compute_loss
        self._get_log_probs = trainer._get_per_token_logps_and_entropies
        self._generate = trainer._generate_and_score_completions
        trainer._compute_loss = self._watched_loss
        trainer._get_per_token_logps_and_entropies = self._watched_log_probs
        trainer._generate_and_score_completions = self._watched_generate

    def _watched_loss(self, model: Any, inputs: Inputs) -> Any:
        self._policy, self._inside_loss = None, True
        try:
            loss = self._compute_loss(model, inputs)
        finally:
            self._inside_loss = False
        if self._trainer.model.training:
            self._deliver(inputs, self._policy)
        self._policy = None
        return loss

    def _watched_log_probs(self, *args: Any, **kwargs: Any) -> Any:
        result = self._get_log_probs(*args, **kwargs)
        if self._inside_loss and self._policy is None and torch.is_grad_enabled():
            self._policy = result[0].detach()
        return result

    def _watched_generate(self, inputs: Sequence[Mapping[str, Any]]) -> Any:
        outputs = self._generate(inputs)
        marks = [prompt_has_observation(row.get("prompt")) for row in inputs]
        if any(marks) and len(marks) == len(outputs["completion_ids"]):
            outputs[PROMPT_KEY] = torch.tensor(marks, device=outputs["completion_ids"].device)
        return outputs


def prompt_has_observation(prompt: Any) -> bool:
    """Say whether a prompt, as a list of chat messages, already holds a tool result."""
    return isinstance(prompt, list) and any(isinstance(turn, dict) and turn.get("role") == "tool" for turn in prompt)


def check_slice_ids(ids: Any, policy: torch.Tensor) -> None:
    """Raise InputError unless a slice function returned integers in the shape and on the device of the policy."""
    got = (tuple(ids.shape), ids.device.type) if isinstance(ids, torch.Tensor) else (type(ids).__name__,)
    if got != (tuple(policy.shape), policy.device.type) or ids.is_floating_point():
        raise InputError(
            f"it returned {got}, expected integers of shape {tuple(policy.shape)} on {policy.device.type}."
        )


def token_batch(inputs: Inputs, policy: torch.Tensor, user_slices: torch.Tensor | None = None) -> TokenBatch:
    """Build the token batch of a GRPO micro-batch.

    ``tool_mask`` is 1 on the policy's tokens and also on padding, so it only has a meaning times ``completion_mask``,
    which is 1 on tool results too. Rollout log-probabilities are 0.0 on tool results and padding; the response mask
    leaves both out.
    """
    completion_mask = inputs["completion_mask"].int()  # half the memory traffic of TRL's int64
    tool_mask = inputs.get("tool_mask")
    response_mask = completion_mask if tool_mask is None else completion_mask * tool_mask.int()
    found = {name: inputs[key] for name, key in LOG_PROBS.items() if inputs.get(key) is not None}
    return TokenBatch(
        response_mask=response_mask,
        observation_mask=completion_mask - response_mask,
        log_probs={"policy": policy, **found},
        prompt_has_observation=inputs.get(PROMPT_KEY),
        token_ids=inputs["completion_ids"],
        user_slices=user_slices,
    )


def rows_of(batch: TokenBatch, rows: slice, ref: torch.Tensor) -> TokenBatch:
    """Return some rows of a batch with reference log-probabilities ``(b, T)`` beside the policy's."""
    prompt = batch.prompt_has_observation
    user_slices = batch.user_slices
    return TokenBatch(
        response_mask=batch.response_mask[rows],
        observation_mask=batch.observation_mask[rows],
        log_probs={"policy": batch.log_probs["policy"][rows], "ref": ref},
        prompt_has_observation=None if prompt is None else prompt[rows],
        token_ids=None if batch.token_ids is None else batch.token_ids[rows],
        user_slices=None if user_slices is None else user_slices[rows],
    )
