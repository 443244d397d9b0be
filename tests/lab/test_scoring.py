"""Rows that are scored in groups of similar length get the log-probabilities that they get together."""

from __future__ import annotations

import pytest

pytest.importorskip("trl")

import torch
from datasets import Dataset
from transformers import LlamaConfig, LlamaForCausalLM
from trl import GRPOConfig, GRPOTrainer

from foreshock.lab.experiment import ON_CPU
from foreshock.lab.scoring import ROWS, score_by_length
from foreshock.lab.vocabulary import VOCABULARY, build_tokenizer

PROMPT, LENGTHS = 3, (1, 9, 4, 4, 30, 2, 4, 4, 4, 3, 0)
"""Of eleven rows; those of length 4 do not all go into the first group."""


@pytest.fixture(params=[torch.float32, torch.bfloat16], ids=str)
def trainer(request, tmp_path):
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(VOCABULARY), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4
    )
    return GRPOTrainer(
        model=LlamaForCausalLM(config).to(request.param),
        processing_class=build_tokenizer(),
        reward_funcs=[lambda completions, **_: [0.0] * len(completions)],
        args=GRPOConfig(
            output_dir=str(tmp_path), per_device_train_batch_size=8, beta=0.0, save_strategy="no", **ON_CPU
        ),
        train_dataset=Dataset.from_list([{"prompt": "think about v3 ?"}]),
    )


@pytest.fixture
def rows():
    """Return input ids and attention mask, both (B, T), of more rows than a group holds, right-padded."""
    assert len(LENGTHS) > ROWS
    places = torch.arange(max(LENGTHS))
    mask = torch.cat([torch.ones(len(LENGTHS), PROMPT), places < torch.tensor(LENGTHS)[:, None]], dim=1).long()
    ids = torch.randint(6, len(VOCABULARY), mask.shape, generator=torch.Generator().manual_seed(1))
    return ids * mask, mask


def score(trainer, rows):
    ids, mask = rows
    return trainer._get_per_token_logps_and_entropies(
        trainer.model, ids, mask, max(LENGTHS), len(ids), compute_entropy=True
    )


def test_log_probabilities_and_entropies_are_those_of_the_padded_batch(trainer, rows):
    together = score(trainer, rows)
    score_by_length(trainer)
    response = rows[1][:, PROMPT:].bool()
    tolerance = 1e-5 if trainer.model.dtype == torch.float32 else 0.05
    for mine, theirs in zip(score(trainer, rows)[:2], together[:2], strict=True):
        assert mine.shape == theirs.shape
        assert (mine[response] - theirs[response]).abs().max() < tolerance
        assert not mine[~response].any()


def test_the_order_of_the_rows_changes_no_bit(trainer, rows):
    score_by_length(trainer)
    shuffled = torch.randperm(len(LENGTHS), generator=torch.Generator().manual_seed(2))
    for here, there in zip(
        score(trainer, rows)[:2], score(trainer, [part[shuffled] for part in rows])[:2], strict=True
    ):
        assert torch.equal(here[shuffled], there)


@pytest.mark.parametrize("trainer", [torch.float32], indirect=True, ids=str)
def test_the_gradient_is_that_of_the_padded_batch(trainer, rows):
    response = rows[1][:, PROMPT:]
    gradients = []
    for grouped in (False, True):
        if grouped:
            score_by_length(trainer)
        trainer.model.zero_grad()
        (score(trainer, rows)[0] * response).sum().backward()
        gradients.append(torch.cat([parameter.grad.flatten() for parameter in trainer.model.parameters()]))
    assert torch.allclose(*gradients, atol=1e-4)
    assert gradients[0].abs().max() > 0.01
