"""The tail against the reference that training began with, for an arm whose reference does not stay.

The run directory of such a run speaks of the current reference, as the trainer's own KL does. This one, beside it,
speaks of the original.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from trl import GRPOTrainer

from foreshock.adapters.trl.grpo import LOG_PROBS, Inputs, LossTap, token_batch
from foreshock.adapters.trl.identity import trainer_identity
from foreshock.adapters.trl.probe import ReferenceProbe
from foreshock.batch import POLICY_REF
from foreshock.live.monitor import Monitor, MonitorConfig
from foreshock.run import Run, RunWriter, prepare_directory


class OriginalReference(TrainerCallback):
    """Scores every micro-batch under the original reference and records the tail in a run directory of its own."""

    def __init__(self, trainer: GRPOTrainer, run_dir: Path, steps_per_block: int) -> None:
        self._trainer = trainer
        self._folder = prepare_directory(run_dir)
        self._config = MonitorConfig(pairs=(POLICY_REF,), steps_per_block=steps_per_block)
        original = AutoModelForCausalLM.from_pretrained(trainer.model.config._name_or_path)
        self._probe = ReferenceProbe(trainer, original)
        LossTap(trainer, self._deliver)

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Open the run directory."""
        identity = {**trainer_identity(self._trainer), "watch": {"max_steps": state.max_steps}}
        writer = RunWriter(self._folder, start_step=state.global_step, identity=identity, notices={})
        self._monitor = Monitor(self._config, device=self._trainer.accelerator.device, writer=writer, run=Run())

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Finish a step."""
        self._monitor.end_step(state.global_step)

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, logs: Any = None, **kwargs: Any
    ) -> None:
        """Record what the trainer logged."""
        self._monitor.log(state.global_step, logs or {})

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Write the last block and how the run ended."""
        self._monitor.finish(state.global_step)
        self._monitor.end("finished")
        self._monitor.close()

    def _deliver(self, inputs: Inputs, policy: torch.Tensor | None) -> None:
        if policy is not None:
            original = self._probe.log_probs(inputs, slice(None))
            self._monitor.observe(token_batch({**inputs, LOG_PROBS["ref"]: original}, policy))
