"""Scoring completions without paying for their padding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn.functional import pad
from trl import GRPOTrainer

ROWS = 8


def score_by_length(trainer: GRPOTrainer) -> None:
    """Let a text-only trainer score its rows in groups of similar length, each without the padding it does not need.

    A completion with several lookups is many times as long as most others, and TRL pads every row to the longest one.
    The result is the same but for rounding, and a row's rounding does not depend on where in the batch it stands: TRL
    shuffles the rows between scoring them under the reference and under the policy.
    """
    inner: Callable[..., Any] = trainer._get_per_token_logps_and_entropies

    def score(
        model: Any, input_ids: torch.Tensor, attention_mask: torch.Tensor, kept: int, *args: Any, **kwargs: Any
    ) -> Any:
        prompt = input_ids.shape[1] - kept
        lengths = attention_mask[:, prompt:].sum(dim=1).tolist()
        order = sorted(range(len(lengths)), key=lambda row: (lengths[row], input_ids[row].tolist()))
        scored = []
        for start in range(0, len(order), ROWS):
            rows = order[start : start + ROWS]
            longest = max(1, lengths[rows[-1]])
            end = prompt + longest
            scored.append(inner(model, input_ids[rows, :end], attention_mask[rows, :end], longest, *args, **kwargs))
        place = torch.tensor(order).argsort()
        log_probs, entropies, _ = zip(*scored, strict=True)
        return _joined(log_probs, kept, place), _joined(entropies, kept, place), None

    trainer._get_per_token_logps_and_entropies = score


def _joined(groups: Sequence[torch.Tensor | None], length: int, place: torch.Tensor) -> torch.Tensor | None:
    """Pad groups of (n, t) to one length, and put their rows in the places that they had; None where nothing is."""
    known = [pad(group, (0, length - group.shape[1])) for group in groups if group is not None]
    return torch.cat(known)[place] if known else None
