from __future__ import annotations

import random
import shutil
from dataclasses import replace

import pytest

pytest.importorskip("trl")

import torch

from foreshock.lab import reference
from foreshock.lab.environment import Habits
from foreshock.lab.reference import IGNORED, TinyReference, _batch, reference_folder, train_reference
from foreshock.lab.vocabulary import ASSISTANT, END, build_tokenizer

TINY = TinyReference(steps=3, batch_size=4, hidden_size=16, layers=1, heads=2)


def weights(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def test_the_same_configuration_gives_the_same_bits_and_another_seed_others():
    tokenizer = build_tokenizer()
    torch.manual_seed(1)
    first = weights(train_reference(TINY, tokenizer))
    torch.manual_seed(2)
    assert torch.equal(first, weights(train_reference(TINY, tokenizer)))
    assert not torch.equal(first, weights(train_reference(replace(TINY, seed=1), tokenizer)))


def test_training_leaves_random_state_and_threads_as_they_were():
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    train_reference(TINY, build_tokenizer())
    assert torch.equal(state, torch.get_rng_state())
    assert threads == torch.get_num_threads()


def test_the_folder_is_content_addressed_and_reused(tmp_path):
    folder = reference_folder(TINY, tmp_path)
    saved = (folder / "model.safetensors").stat().st_mtime_ns
    assert reference_folder(TINY, tmp_path) == folder
    assert (folder / "model.safetensors").stat().st_mtime_ns == saved
    other = replace(TINY, habits=Habits(follow=(0.5, 0.5, 0.5)))
    assert other.digest != TINY.digest
    assert [path.name for path in tmp_path.iterdir()] == [folder.name]


def test_a_folder_that_another_process_finished_meanwhile_stays(tmp_path, monkeypatch):
    elsewhere = reference_folder(TINY, tmp_path / "elsewhere")
    cache = tmp_path / "cache"

    def train_while_another_finishes(config, tokenizer, on_step):
        shutil.copytree(elsewhere, cache / elsewhere.name)
        return train_reference(config, tokenizer, on_step)

    monkeypatch.setattr(reference, "train_reference", train_while_another_finishes)
    folder = reference_folder(TINY, cache)
    assert [path.name for path in cache.iterdir()] == [folder.name]
    assert (folder / "model.safetensors").read_bytes() == (elsewhere / "model.safetensors").read_bytes()


def test_only_what_the_assistant_says_is_learnt():
    tokenizer = build_tokenizer()
    config = replace(TINY, batch_size=64, habits=Habits(redirect_share=0.8, follow=(1.0, 1.0, 1.0)))
    batch = _batch(config, tokenizer, random.Random(0))
    for ids, labels in zip(batch["input_ids"], batch["labels"], strict=True):
        speaking, expected = False, []
        for token in tokenizer.convert_ids_to_tokens(ids):
            expected.append(speaking)
            speaking = token == ASSISTANT or (speaking and token != END)
        assert (labels != IGNORED).tolist() == expected
