"""Where the per-token log-probabilities of a GRPOTrainer are read.

Four bound methods of the trainer object are wrapped; no class is changed and no extra forward pass is made:
``_compute_loss`` gives the micro-batch, ``_get_per_token_logps_and_entropies`` the policy's log-probabilities that the
loss is computed from, ``_generate_and_score_completions`` the prompts, of which it marks those that already hold a
tool result, and ``_calculate_rewards`` the completions as chat messages, which hold the names of the tools that were
called. Read from TRL 1.14 to 1.16, where the names and meanings of these tensors are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from foreshock.batch import TokenBatch
from foreshock.errors import InputError

PROMPT_KEY = "foreshock_prompt_has_observation"
"""Key under which the mark travels through TRL's shuffle and split, shape ``(B,)``; no part of TRL reads it."""

TOOLS_KEY = "foreshock_tools"
"""The same for the numbers of the tools behind the observation tokens, ``(B, 1 + K)``: ``TokenBatch.tools``."""

NO_SUCH_TOOL = "(no such tool)"
"""Name of every tool that the policy called and the trainer does not have."""

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
        self._completions: Any = None
        self._tool_names = tool_names(trainer)
        self._compute_loss = trainer._compute_loss
        self._get_log_probs = trainer._get_per_token_logps_and_entropies
        self._generate = trainer._generate_and_score_completions
        self._calculate_rewards = trainer._calculate_rewards
        trainer._compute_loss = self._watched_loss
        trainer._get_per_token_logps_and_entropies = self._watched_log_probs
        trainer._generate_and_score_completions = self._watched_generate
        trainer._calculate_rewards = self._watched_rewards

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

    def _watched_rewards(self, inputs: Any, prompts: Any, completions: Any, *args: Any, **kwargs: Any) -> Any:
        self._completions = completions
        return self._calculate_rewards(inputs, prompts, completions, *args, **kwargs)

    def _watched_generate(self, inputs: Sequence[Mapping[str, Any]]) -> Any:
        self._completions = None
        outputs = self._generate(inputs)
        prompts, device = [row.get("prompt") for row in inputs], outputs["completion_ids"].device
        completions = self._completions or [None] * len(prompts)
        if not len(prompts) == len(completions) == len(outputs["completion_ids"]):
            return outputs
        marks = [prompt_has_observation(prompt) for prompt in prompts]
        if any(marks):
            outputs[PROMPT_KEY] = torch.tensor(marks, device=device)
        tools = tool_numbers(prompts, completions, self._tool_names)
        if tools:
            outputs[TOOLS_KEY] = torch.tensor(tools, device=device)
        return outputs


def tool_names(trainer: Any) -> tuple[str, ...]:
    """Return the names of the trainer's tools, the same on every worker; their places are their numbers."""
    names = (getattr(tool, "__name__", str(tool)) for tool in trainer.tools or ())
    return (*dict.fromkeys(names), NO_SUCH_TOOL)


def prompt_has_observation(prompt: Any) -> bool:
    """Say whether a prompt, as a list of chat messages, already holds a tool result."""
    return bool(_tools_by_stretch(prompt))


def tool_numbers(prompts: Sequence[Any], completions: Sequence[Any], names: Sequence[str]) -> list[list[int]]:
    """Return for each row the tool of the last result in its prompt, then of the last in each later stretch of results.

    Prompts and completions are lists of chat messages, or text, which tells no tool. A tool is its place in ``names``,
    of which the last is :data:`NO_SUCH_TOOL`; −1 is none, or not known. All rows have the length of the longest; []
    when no row knows a tool.
    """
    numbers = {"": -1} | {name: number for number, name in enumerate(names)}
    rows = []
    for prompt, completion in zip(prompts, completions, strict=True):
        before = [numbers.get(name, -1) for name in _tools_by_stretch(prompt)]
        called = [numbers.get(name, len(names) - 1) for name in _tools_by_stretch(completion)]
        rows.append((before or [-1])[-1:] + called)
    if all(number < 0 for row in rows for number in row):
        return []
    longest = max(map(len, rows))
    return [row + [-1] * (longest - len(row)) for row in rows]


def _tools_by_stretch(messages: Any) -> list[str]:
    """Return the name in the last message of each run of tool results among chat messages; "" for none."""
    found: list[str] = []
    inside = False
    for message in messages if isinstance(messages, list) else []:
        is_result = isinstance(message, dict) and message.get("role") == "tool"
        if is_result and not inside:
            found.append("")
        if is_result:
            found[-1] = str(message.get("name", ""))
        inside = is_result
    return found


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
        tools=inputs.get(TOOLS_KEY),
    )


def rows_of(batch: TokenBatch, rows: slice, ref: torch.Tensor) -> TokenBatch:
    """Return some rows of a batch with reference log-probabilities ``(b, T)`` beside the policy's."""
    optional = {name: getattr(batch, name) for name in ("prompt_has_observation", "token_ids", "user_slices", "tools")}
    return TokenBatch(
        response_mask=batch.response_mask[rows],
        observation_mask=batch.observation_mask[rows],
        log_probs={"policy": batch.log_probs["policy"][rows], "ref": ref},
        **{name: None if tensor is None else tensor[rows] for name, tensor in optional.items()},
    )
