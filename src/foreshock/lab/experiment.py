"""The experiment: one frozen description, and the real `GRPOTrainer` that it stands for."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from datasets import Dataset
from peft import LoraConfig
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PrinterCallback,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)
from trl import GRPOConfig, GRPOTrainer

from foreshock.errors import InputError
from foreshock.lab.arms import ARMS, Arm
from foreshock.lab.control import apply_arm
from foreshock.lab.environment import REDIRECT_SHARE, Curriculum, World, correct_answer, questions
from foreshock.lab.plan import MODELS
from foreshock.lab.reference import ReferenceConfig, TinyReference, reference_folder
from foreshock.lab.scoring import score_by_length

GENERATIONS = 8

ON_CPU: dict[str, Any] = {
    "lr_scheduler_type": "constant",
    "gradient_checkpointing": False,
    "use_cpu": True,
    "bf16": False,
    "dataloader_pin_memory": False,
    "logging_steps": 1,
    "report_to": "none",
    "disable_tqdm": True,
}
"""What every run of the lab has in common: on the CPU, every step logged, nothing else printed."""


@dataclass(frozen=True)
class Experiment:
    """One run.

    `arm`: the name of one of the `ARMS`.
    `curriculum`: how the share of redirecting keys rises, whatever the policy does. The default one is still
    rising when the default number of steps ends.
    `grader_noise`: the share of grades that are flipped, so that training never runs out of gradient.
    `adapter_rank`: of the LoRA matrices that are trained, in float32 on the attention; None trains every weight.
    `steps_per_checkpoint`: how often a run is saved, to go on from there; None never does.

    The first 50 steps or so are burn-in: the policy starts at its reference (r = 0) and learns the plain task.
    """

    arm: str = "fixed"
    seed: int = 0
    steps: int = MODELS["tiny"].steps
    lookups_per_step: int = 4
    thoughts_per_step: int = 16
    learning_rate: float = 3e-4
    beta: float = 0.04
    grader_noise: float = 0.08
    curriculum: Curriculum = field(default_factory=lambda: Curriculum(0.06, 0.6, 30, 240))
    reference: ReferenceConfig = field(default_factory=TinyReference)
    adapter_rank: int | None = None
    max_completion_length: int = 72
    steps_per_checkpoint: int | None = None


def build_trainer(experiment: Experiment, folder: Path | str) -> GRPOTrainer:
    """Build the trainer of one run, ready for `train()`; the reference is trained, or read from `folder`'s cache.

    With several workers (torchrun) the main process trains the reference while the others wait. The rows of a step are
    shared out, so that a step means the same on any number of workers. On one thread the same experiment gives the same
    bits; call `torch.set_num_threads(1)` before, since matrices this small gain nothing from more threads and lose much
    on busy cores. Raises InputError where the rows cannot be shared out in whole groups.
    """
    folder = Path(folder)
    with PartialState(cpu=True).main_process_first():
        reference = reference_folder(experiment.reference, folder)
    arm = ARMS[experiment.arm]
    world = World(experiment.curriculum, seed=experiment.seed, redirects=arm.redirects, free_forms=arm.free_forms)
    trainer = GRPOTrainer(
        model=_policy(reference),
        processing_class=AutoTokenizer.from_pretrained(
            reference, padding_side="left", clean_up_tokenization_spaces=False
        ),
        reward_funcs=[_reward(world, experiment.grader_noise)],
        args=_trainer_config(experiment, folder),
        train_dataset=Dataset.from_list(
            questions(experiment.steps, experiment.lookups_per_step, experiment.thoughts_per_step, experiment.seed)
        ),
        tools=[world.lookup],
        peft_config=_adapter(experiment.adapter_rank),
        callbacks=[_WorldClock(world)],
    )
    trainer.remove_callback(PrinterCallback)
    if experiment.adapter_rank is not None:
        score_by_length(trainer)
    apply_arm(trainer, arm)
    return trainer


def _policy(reference: Path) -> PreTrainedModel:
    model = AutoModelForCausalLM.from_pretrained(reference)
    if model.config.tie_word_embeddings:
        # TRL cannot cast the head of a model with an adapter while it shares its weights with the embeddings.
        model.config.tie_word_embeddings = False
        model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
    return model


def _trainer_config(experiment: Experiment, folder: Path) -> GRPOConfig:
    rows = (experiment.lookups_per_step + experiment.thoughts_per_step) * GENERATIONS
    workers = PartialState().num_processes
    if rows % (workers * GENERATIONS):
        raise InputError(
            f"{rows // GENERATIONS} prompts a step cannot be shared out to {workers} workers: "
            "choose lookups_per_step + thoughts_per_step as a multiple of the workers"
        )
    return GRPOConfig(
        output_dir=str(folder / f"trainer-{experiment.arm}-{experiment.seed}"),
        seed=experiment.seed,
        max_steps=experiment.steps,
        per_device_train_batch_size=rows // workers,
        num_generations=GENERATIONS,
        learning_rate=experiment.learning_rate,
        adam_beta2=0.99,
        beta=experiment.beta,
        **_refresh(ARMS[experiment.arm]),
        scale_rewards="none",
        # A noisy grader now and then rewards a word that was drawn against all odds. Cutting off the words that are far
        # less likely than the likeliest one keeps accidents of that kind out of both slices, wherever one word is
        # likely: the reference must nowhere be unsure between many.
        min_p=0.03,
        max_completion_length=experiment.max_completion_length,
        max_tool_calling_iterations=5,
        shuffle_dataset=False,
        # Logits in bfloat16 are an eighth of a nat apart.
        cast_lm_head_to_fp32=experiment.reference.dtype == torch.bfloat16,
        save_strategy="steps" if experiment.steps_per_checkpoint else "no",
        save_steps=experiment.steps_per_checkpoint or experiment.steps,
        save_total_limit=1,
        **ON_CPU,
    )


def _adapter(rank: int | None) -> LoraConfig | None:
    if rank is None:
        return None
    attention = ["q_proj", "k_proj", "v_proj", "o_proj"]
    return LoraConfig(r=rank, lora_alpha=4 * rank, target_modules=attention, task_type="CAUSAL_LM")


def _refresh(arm: Arm) -> dict[str, Any]:
    if arm.refresh_every is None:
        return {}
    return {"sync_ref_model": True, "ref_model_sync_steps": arm.refresh_every, "ref_model_mixup_alpha": 1.0}


class _WorldClock(TrainerCallback):
    """Tell the world which step it is, so that tool and reward agree on it and a resumed run goes on where it was."""

    def __init__(self, world: World) -> None:
        self._world = world

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._world.step = state.global_step


def _reward(world: World, noise: float) -> Any:
    def grade(
        completions: list[list[dict[str, Any]]], kind: list[str], subject: list[str], log_metric: Any, **_: Any
    ) -> list[float]:
        log_metric(REDIRECT_SHARE, world.curriculum.share(world.step))  # a run's record discloses its curriculum
        rng = random.Random(f"grader/{world.seed}/{world.step}/{PartialState().process_index}")
        grades = []
        for messages, k, s in zip(completions, kind, subject, strict=True):
            right = correct_answer(world, k, s, messages[-1])
            grades.append(1.0 - right if rng.random() < noise else right)
        return grades

    return grade
