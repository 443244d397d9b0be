"""The reference policy: a model trained by supervision on synthetic dialogues, then kept in a cache."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import ClassVar

import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, PreTrainedTokenizerFast

from foreshock.lab.environment import Habits, dialogue
from foreshock.lab.vocabulary import ASSISTANT, CHAT_TEMPLATE, END, VOCABULARY, build_tokenizer

IGNORED = -100  # the label that the cross-entropy skips


@dataclass(frozen=True)
class ReferenceConfig(ABC):
    """Everything that decides the reference's weights: the model that training begins with, and the training."""

    seed: int = 0
    steps: int = 1000
    batch_size: int = 64
    learning_rate: float = 3e-3
    habits: Habits = field(default_factory=Habits)

    dtype: ClassVar[torch.dtype] = torch.float32
    """In which matrices are multiplied, and in which the weights are saved."""

    @abstractmethod
    def tokenizer(self) -> PreTrainedTokenizerFast:
        """Return the tokenizer."""

    @abstractmethod
    def model(self, tokenizer: PreTrainedTokenizerFast) -> PreTrainedModel:
        """Return the model that training begins with, in float32."""

    @property
    def digest(self) -> str:
        """Twelve hex digits of what the weights depend on: configuration, vocabulary and a sample of the dialogues.

        The sample stands for the code that writes the dialogues: when that changes, so does the digest.
        """
        rng = random.Random(self.seed)
        sample = [dialogue(self.habits, rng) for _ in range(200)]
        content = [asdict(self), VOCABULARY, CHAT_TEMPLATE, sample]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]


@dataclass(frozen=True)
class TinyReference(ReferenceConfig):
    """A new model of the Llama kind, with the vocabulary of the experiment; trained in about a minute."""

    hidden_size: int = 64
    layers: int = 2
    heads: int = 4

    def tokenizer(self) -> PreTrainedTokenizerFast:
        """Return the word-level tokenizer."""
        return build_tokenizer()

    def model(self, tokenizer: PreTrainedTokenizerFast) -> PreTrainedModel:
        """Return a model with random weights."""
        return LlamaForCausalLM(
            LlamaConfig(
                vocab_size=len(tokenizer),
                hidden_size=self.hidden_size,
                intermediate_size=2 * self.hidden_size,
                num_hidden_layers=self.layers,
                num_attention_heads=self.heads,
                num_key_value_heads=self.heads,
                max_position_embeddings=256,
                pad_token_id=tokenizer.pad_token_id,
                bos_token_id=None,
                eos_token_id=tokenizer.eos_token_id,
                tie_word_embeddings=False,
            )
        )


def reference_folder(config: ReferenceConfig, cache: Path, on_step: Callable[[int], None] = lambda step: None) -> Path:
    """Return the folder that holds the trained reference and its tokenizer, training it first where it is not cached.

    `on_step` is told each training step that has ended, from 1 on.

    The folder's name is the digest of the configuration. It appears only when complete (written aside, then renamed).
    Two processes that train the same reference at the same time do no harm: the first one's folder stays.
    """
    folder = cache / f"reference-{config.digest}"
    if folder.exists():
        return folder
    aside = cache / f".{folder.name}.{os.getpid()}"
    tokenizer = config.tokenizer()
    train_reference(config, tokenizer, on_step).to(config.dtype).save_pretrained(aside)
    tokenizer.save_pretrained(aside)
    try:
        aside.rename(folder)
    except OSError:
        if not folder.exists():
            raise
        shutil.rmtree(aside)
    return folder


def train_reference(
    config: ReferenceConfig, tokenizer: PreTrainedTokenizerFast, on_step: Callable[[int], None] = lambda step: None
) -> PreTrainedModel:
    """Train the reference on `config.steps` batches of fresh dialogues; the same seed gives the same weights.

    It runs on one thread: small matrices gain nothing from more, and the order of additions stays the same. The number
    of threads and the global random state are put back as they were.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        model = config.model(tokenizer)
        optimizer = torch.optim.AdamW(model.parameters(), lr=config.learning_rate, weight_decay=0.01)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, config.learning_rate, total_steps=config.steps)
        rng = random.Random(config.seed)
        for step in range(1, config.steps + 1):
            batch = _batch(config, tokenizer, rng)
            optimizer.zero_grad()
            with torch.autocast("cpu", config.dtype, enabled=config.dtype != torch.float32):
                loss = model(**batch).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            on_step(step)
    torch.set_num_threads(threads)
    return model.eval()


def _batch(config: ReferenceConfig, tokenizer: PreTrainedTokenizerFast, rng: random.Random) -> dict[str, torch.Tensor]:
    """Return (B, T) input ids, attention mask and labels; only what the assistant says is a label."""
    texts = [
        tokenizer.apply_chat_template(dialogue(config.habits, rng), tokenize=False) for _ in range(config.batch_size)
    ]
    encoded = tokenizer(texts, add_special_tokens=False, padding=True, padding_side="right", return_tensors="pt")
    ids, mask = encoded["input_ids"], encoded["attention_mask"]
    spoken = _spoken_by_assistant(ids, tokenizer)
    return {"input_ids": ids, "attention_mask": mask, "labels": torch.where(spoken, ids, IGNORED)}


def _spoken_by_assistant(ids: torch.Tensor, tokenizer: PreTrainedTokenizerFast) -> torch.Tensor:
    """Return a (B, T) mask of the tokens after an assistant header, up to and with the END that closes its turn."""
    starts = ids == tokenizer.convert_tokens_to_ids(ASSISTANT)
    ends = ids == tokenizer.convert_tokens_to_ids(END)
    speaking = torch.zeros_like(starts)
    for t in range(1, ids.shape[1]):
        speaking[:, t] = starts[:, t - 1] | (speaking[:, t - 1] & ~ends[:, t - 1])
    return speaking
