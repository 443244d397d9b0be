"""The real trainers of TRL take one optimizer step on what is exported, loaded by the real ``datasets``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset, load_dataset
from simulated import rows as simulated_rows
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import DPOConfig, DPOTrainer, GRPOConfig, GRPOTrainer, KTOConfig, KTOTrainer, SFTConfig, SFTTrainer

from foreshock.lab.vocabulary import build_tokenizer
from foreshock.traces import export, read_traces


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return build_tokenizer()


@pytest.fixture
def model(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> LlamaForCausalLM:
    """A random model from a folder, as DPO and KTO load their reference policy from where the policy came from."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    ids = {"pad_token_id": tokenizer.pad_token_id, "bos_token_id": None, "eos_token_id": tokenizer.eos_token_id}
    config = LlamaConfig(vocab_size=len(tokenizer), max_position_embeddings=4096, **sizes, **ids)
    LlamaForCausalLM(config).save_pretrained(tmp_path / "model")
    return LlamaForCausalLM.from_pretrained(tmp_path / "model")


def texts() -> list[dict[str, Any]]:
    rows = []
    for row in simulated_rows(0, steps=2):
        prompt, answer = row["messages"][0]["content"], row["messages"][-1]["content"]
        rows.append({"input": prompt, "output": answer, "score": row["reward"], "step": row["step"], "gts": "x"})
    return rows


SOURCES = {"chats with tools": lambda: simulated_rows(0, steps=2), "texts": texts}


@pytest.fixture(params=list(SOURCES))
def load(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    def load(kind: str) -> Dataset:
        path = tmp_path / "traces"
        path.write_text("".join(json.dumps(row) + "\n" for row in SOURCES[request.param]()))
        count, _ = export.write_dataset(read_traces(path), kind, tmp_path / "data.jsonl")
        data = load_dataset("json", data_files=str(tmp_path / "data.jsonl"), split="train", cache_dir=tmp_path / "c")
        assert len(data) == count
        return data

    return load


def options(tmp_path: Path) -> dict[str, Any]:
    return {
        "output_dir": str(tmp_path / "trainer"), "max_steps": 1, "per_device_train_batch_size": 2, "report_to": "none",
        "save_strategy": "no", "use_cpu": True, "bf16": False, "disable_tqdm": True, "gradient_checkpointing": False,
    }  # fmt: skip


def losses(trainer: Any) -> list[float]:
    trainer.train()
    return [row["train_loss"] for row in trainer.state.log_history if "train_loss" in row]


@pytest.mark.parametrize(
    ("kind", "trainer_class", "config_class"),
    [
        ("preference", DPOTrainer, DPOConfig),
        ("kto", KTOTrainer, KTOConfig),
        ("sft", SFTTrainer, SFTConfig),
    ],
)
def test_offline_trainers(
    kind: str, trainer_class: Any, config_class: Any, load: Any, model: Any, tokenizer: Any, tmp_path: Path
) -> None:
    trainer = trainer_class(
        model=model, args=config_class(**options(tmp_path)), train_dataset=load(kind), processing_class=tokenizer
    )
    (loss,) = losses(trainer)
    assert loss > 0


def test_grpo(load: Any, model: Any, tokenizer: Any, tmp_path: Path) -> None:
    seen: list[Any] = []

    def reward(completions: list[Any], prompts: list[Any], **columns: Any) -> list[float]:
        seen.extend(prompts)
        return [float(place) for place in range(len(completions))]

    config = GRPOConfig(**options(tmp_path), num_generations=2, max_completion_length=4)
    data = load("grpo")
    trainer = GRPOTrainer(model, reward_funcs=reward, args=config, train_dataset=data, processing_class=tokenizer)
    assert len(losses(trainer)) == 1
    assert seen[0] in data["prompt"]
