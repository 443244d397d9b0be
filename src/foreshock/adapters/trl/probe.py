"""Reference log-probabilities for a trainer that computes none (``beta = 0``, TRL's default)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch

from foreshock.adapters.trl.grpo import Inputs
from foreshock.errors import InputError

PROBE_SHARE = 1 / 20
"""Share of rows that are scored once more under the reference.

A step costs at least three forward passes (one forward, and a backward of about two) besides generation, so a twentieth
of one forward is at most 1/60, or 1.7 %, of the step's time.
"""


class ReferenceProbe:
    """Scores a small share of rows under the base model with the adapter off, or under a given reference model.

    Which rows depends only on how many micro-batches went by, never on data or on time, so that all workers make the
    same number of forward passes.
    """

    def __init__(self, trainer: Any, ref_model: Any | None = None) -> None:
        self._trainer = trainer
        self._ref_model = None if ref_model is None else _prepare(trainer, ref_model)
        self._credit = 0.0
        self._next_row = 0

    def next(self, inputs: Inputs) -> tuple[slice, torch.Tensor] | None:
        """Return which rows of the next micro-batch are scored, and their log-probabilities ``(b, T)``, if any are."""
        rows = self.next_rows(len(inputs["completion_ids"]))
        return None if rows is None else (rows, self.log_probs(inputs, rows))

    def next_rows(self, batch_size: int) -> slice | None:
        """Return the rows of the next micro-batch to score; None for none of them."""
        self._credit += PROBE_SHARE * batch_size
        count = min(int(self._credit), batch_size)
        if count == 0:
            return None
        self._credit -= count
        start = self._next_row if self._next_row + count <= batch_size else 0
        self._next_row = start + count
        return slice(start, start + count)

    @torch.no_grad()
    def log_probs(self, inputs: Inputs, rows: slice) -> torch.Tensor:
        """Return the reference log-probabilities of some rows, ``(b, T)`` in nats."""
        ids = torch.cat([inputs["prompt_ids"][rows], inputs["completion_ids"][rows]], dim=1)
        attention = torch.cat([inputs["prompt_mask"][rows], inputs["completion_mask"][rows]], dim=1)
        length = inputs["completion_ids"].shape[1]
        trainer = self._trainer
        model = trainer.model if self._ref_model is None else self._ref_model
        with self._without_adapter(), _evaluating(model):
            result = trainer._get_per_token_logps_and_entropies(model, ids, attention, length, batch_size=len(ids))
        return result[0]  # type: ignore[no-any-return]

    def _without_adapter(self) -> AbstractContextManager[Any]:
        if self._ref_model is not None:
            return nullcontext()
        return self._trainer.accelerator.unwrap_model(self._trainer.model).disable_adapter()  # type: ignore[no-any-return]


@contextmanager
def _evaluating(model: Any) -> Iterator[None]:
    """Switch dropout off, so that the probe draws no random number that training would have drawn."""
    training = [module for module in model.modules() if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True


def can_probe_adapter(trainer: Any) -> bool:
    """Say whether the trainer's model is a PEFT model whose adapter can be switched off."""
    return hasattr(trainer.accelerator.unwrap_model(trainer.model), "disable_adapter") and hasattr(
        trainer.accelerator.unwrap_model(trainer.model), "peft_config"
    )


def _prepare(trainer: Any, ref_model: Any) -> Any:
    """Make a reference model ready; only where one whole copy a worker is what the trainer would make too."""
    if trainer.is_deepspeed_enabled or trainer.is_fsdp_enabled:
        raise InputError(
            "ref_model= does not work with DeepSpeed or FSDP yet. Set beta > 0, so that the trainer shards a reference "
            "of its own."
        )
    expected = trainer.accelerator.unwrap_model(trainer.model).config.get_text_config().vocab_size
    got = ref_model.config.get_text_config().vocab_size
    if got != expected:
        raise InputError(
            f"ref_model has a vocabulary of {got} tokens, the policy one of {expected}. Pass a reference with the same "
            "tokenizer as the policy."
        )
    try:
        from trl.trainer.utils import add_fused_lm_head
    except ImportError:  # before TRL 1.15 log-probabilities are computed from the logits
        pass
    else:
        add_fused_lm_head(
            ref_model, temperature=trainer.temperature, cast_lm_head_to_fp32=trainer.args.cast_lm_head_to_fp32
        )
    ref_model.eval()
    return trainer.accelerator.prepare_model(ref_model, evaluation_mode=True)
