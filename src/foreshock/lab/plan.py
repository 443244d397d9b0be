"""What a run is, before anything heavy is loaded: its model, arm, seed, length and folders."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from foreshock.errors import InputError
from foreshock.lab.arms import ARMS

ORIGINAL = "original"
"""Folder inside a run directory: the tail against the reference that training began with, where that does not stay."""


@dataclass(frozen=True)
class Model:
    """One model that the experiment runs on.

    `steps`: optimizer steps of a run. `steps_per_block`: the runs are short, so blocks may be; the false-alarm share of
    null runs of such a length is in docs/detectors.md. `seconds_per_step`: measured on one core, and only printed as an
    estimate. `resumes`: whether a half-finished run goes on from a checkpoint.
    """

    description: str
    arms: tuple[str, ...]
    steps: int
    steps_per_block: int
    seconds_per_step: float
    resumes: bool = False


MODELS = {
    "tiny": Model("a small tool-using agent", tuple(ARMS), 210, 6, 0.45),
    "smollm2": Model(
        "SmolLM2-135M-Instruct with LoRA", ("fixed", "drift_aware", "constrained"), 132, 6, 16.0, resumes=True
    ),
}


@dataclass(frozen=True)
class RunPlan:
    """One run. `cache`: the folder of references, converted models and checkpoints.

    Raises InputError where the model does not know the arm.
    """

    model: str
    arm: str
    seed: int
    steps: int
    run_dir: Path
    cache: Path

    def __post_init__(self) -> None:
        arms = MODELS[self.model].arms
        if self.arm not in arms:
            raise InputError(f"unknown arm for {self.model}: got {self.arm!r}, expected one of {', '.join(arms)}")

    @property
    def name(self) -> str:
        """Arm and seed, as folders and progress name a run."""
        return f"{self.arm}-{self.seed}"
