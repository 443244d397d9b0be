"""Real trainers on a tiny policy that has learnt to call a tool in a few seconds."""

import random

import pytest
import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, PrinterCallback
from trl import GRPOConfig, GRPOTrainer

from foreshock.lab.environment import Curriculum, Habits, World, questions
from foreshock.lab.reference import TinyReference, reference_folder
from foreshock.lab.vocabulary import build_tokenizer

REFERENCE = TinyReference(steps=120, batch_size=32, habits=Habits(call_share=0.8))


@pytest.fixture(scope="session")
def reference(tmp_path_factory, worker_id):
    """Folder of a small reference that calls the tool now and then."""
    return reference_folder(REFERENCE, tmp_path_factory.mktemp(f"reference-{worker_id}"))


@pytest.fixture
def make_trainer(reference, tmp_path):
    """Build a GRPOTrainer on the tiny policy; keyword arguments go to GRPOConfig, a few to the trainer."""

    def build(
        *, tools=True, peft=False, rows=None, trainer_class=GRPOTrainer, callbacks=None, rollout_func=None,
        environment_factory=None, **config,
    ):  # fmt: skip
        world = World(Curriculum(0.1, 0.7, 0, 10), seed=0)
        defaults = {
            "output_dir": str(tmp_path / "trainer"),
            "max_steps": 3,
            "per_device_train_batch_size": 8,
            "num_generations": 4,
            "max_completion_length": 32,
            "max_tool_calling_iterations": 3,
            "learning_rate": 1e-3,
            "logging_steps": 1,
            "report_to": "none",
            "save_strategy": "no",
            "use_cpu": True,
            "bf16": False,
            "disable_tqdm": True,
            "gradient_checkpointing": False,
        }
        trainer = trainer_class(
            model=AutoModelForCausalLM.from_pretrained(reference),
            processing_class=build_tokenizer(),
            reward_funcs=[noisy_reward],
            args=GRPOConfig(**{**defaults, **config}),
            train_dataset=Dataset.from_list(rows or questions(20, 3, 1, seed=0)),
            tools=[world.lookup] if tools else None,
            peft_config=LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM") if peft else None,
            callbacks=callbacks,
            rollout_func=rollout_func,
            environment_factory=environment_factory,
        )
        trainer.remove_callback(PrinterCallback)
        return trainer

    torch.manual_seed(0)
    return build


def noisy_reward(completions, **_):
    """Reward that always differs within a group, so that every step moves the policy."""
    return [random.Random(str(completion)).random() for completion in completions]


@pytest.fixture
def rollout():
    """A rollout_func with an environment turn in the middle and one log-probability that the sampler could not give."""
    return one_turn_with_an_observation


def one_turn_with_an_observation(prompts, trainer):
    tokenizer = trainer.processing_class
    ids = tokenizer.apply_chat_template(prompts, add_generation_prompt=True, tokenize=True, return_dict=True)[
        "input_ids"
    ]
    completion = tokenizer.convert_tokens_to_ids(
        ["well", "so", "value", "=", "v1", "answer", "v1", tokenizer.eos_token]
    )
    logs = [-1.0, None, 0.0, 0.0, 0.0, -2.0, -2.0, -1.0]
    return {
        "prompt_ids": ids,
        "completion_ids": [list(completion) for _ in prompts],
        "logprobs": [list(logs) for _ in prompts],
        "env_mask": [[1, 1, 0, 0, 0, 1, 1, 1] for _ in prompts],
    }
