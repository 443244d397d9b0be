"""One run: the trainer that its plan stands for, and its training under the watch.

``python -m foreshock.lab.runs MODEL ARM SEED STEPS RUN_DIR CACHE`` trains one. A sweep gives every run a process of
its own: runs share no state, and one that fails takes no other with it.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

from foreshock.errors import MissingExtra

try:
    import torch
    from transformers import PrinterCallback
    from transformers.trainer_utils import get_last_checkpoint
    from transformers.utils.logging import disable_progress_bar
    from trl import GRPOTrainer
except ImportError as error:
    raise MissingExtra("the experiment", "'foreshock[trl]'") from error

import foreshock
from foreshock.lab import smollm2
from foreshock.lab.arms import ARMS
from foreshock.lab.experiment import Experiment, build_trainer
from foreshock.lab.original import OriginalReference
from foreshock.lab.plan import MODELS, ORIGINAL, RunPlan
from foreshock.run.directory import RUN


def prepare(plan: RunPlan) -> GRPOTrainer:
    """Build the trainer of a run, silent and ready; the reference is trained where it is not cached yet."""
    warnings.filterwarnings("ignore", category=FutureWarning)
    disable_progress_bar()
    if plan.model == "tiny":
        torch.set_num_threads(1)  # on matrices this small a second thread only waits, and one gives the same bits
    trainer = build_trainer(experiment_of(plan), plan.cache)
    trainer.remove_callback(PrinterCallback)
    return trainer


def experiment_of(plan: RunPlan) -> Experiment:
    """Return the experiment that a plan stands for."""
    if plan.model == "tiny":
        return Experiment(arm=plan.arm, seed=plan.seed, steps=plan.steps)
    return smollm2.experiment(plan.arm, plan.seed, plan.steps)


def train(trainer: GRPOTrainer, plan: RunPlan, *, write_report: bool = True, resume: bool = False) -> None:
    """Train under the watch; with ``resume`` a run that was begun goes on from the last checkpoint that it kept."""
    model = MODELS[plan.model]
    checkpoint = _last_checkpoint(trainer) if resume and (plan.run_dir / RUN).is_file() else None
    foreshock.watch(trainer, run_dir=plan.run_dir, steps_per_block=model.steps_per_block, write_report=write_report)
    if ARMS[plan.arm].refresh_every is not None:
        trainer.add_callback(OriginalReference(trainer, plan.run_dir / ORIGINAL, model.steps_per_block))
    trainer.train(resume_from_checkpoint=checkpoint)


def _last_checkpoint(trainer: GRPOTrainer) -> str | None:
    folder = Path(trainer.args.output_dir)
    return get_last_checkpoint(folder) if folder.is_dir() else None


if __name__ == "__main__":
    model, arm, seed, steps, run_dir, cache = sys.argv[1:]
    plan = RunPlan(model, arm, int(seed), int(steps), Path(run_dir), Path(cache))
    train(prepare(plan), plan, write_report=False, resume=True)
