"""Token dumps as the trainers write them, all of the same rollouts, so that every reader can be held to one truth."""

from __future__ import annotations

import io
import json
import pickle
import sys
import types
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from foreshock.sketch import LogRatioSketch

Floats = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Sample:
    """One rollout: prompt, text, a tool result, and an answer to it. Everything but ``prompt`` is ``(T,)``."""

    prompt: list[int]
    ids: list[int]
    mask: list[int]
    rollout: list[float]
    old: list[float]
    ref: list[float]
    reward: float


def rollouts(step: int, count: int = 8, post_tool_tail: float = 0.02, seed: int = 0) -> list[Sample]:
    """Return the rollouts of a step, four a prompt; the tail after the tool result is as wide as asked for."""
    rng = np.random.default_rng((seed, step))
    made = []
    for row in range(count):
        text, observed, answer = (int(length) for length in rng.integers((10, 5, 10), (30, 12, 30)))
        mask = [1] * text + [0] * observed + [1] * answer
        size = np.where(np.arange(len(mask)) < text, 0.02, post_tool_tail)
        old = np.where(mask, -rng.exponential(0.7, len(mask)) - 1e-4, -3.0).round(6)
        rollout = np.where(mask, np.minimum(old + rng.standard_t(4, len(mask)) * size, -1e-6), 0.0).round(6)
        ref = (old + rng.standard_t(4, len(mask)) * size).round(6)
        ids = rng.integers(10, 1000, len(mask)).tolist()
        prompt = [row // 4 + 1, 2, 3, step % 7 + 4]
        made.append(Sample(prompt, ids, mask, rollout.tolist(), old.tolist(), ref.tolist(), float(rng.random() < 0.5)))
    return made


def truth(samples: Sequence[Sample], numerator: str, denominator: str) -> LogRatioSketch:
    """Return the sketch of a pair as it follows from the rollouts themselves."""
    sketch = LogRatioSketch()
    for sample in samples:
        mask = np.array([sample.mask])
        post_tool = (np.cumsum(1 - mask, axis=1) > 0).astype(int)
        numbers = [np.array([getattr(sample, name)], np.float32) for name in (numerator, denominator)]
        sketch.update(numbers[0] - numbers[1], post_tool, mask)
    return sketch


def prime_rl(folder: Path, steps: Sequence[Sequence[Sample]], ranks: int = 2, stable: bool = True) -> Path:
    for step, samples in enumerate(steps):
        place = folder / "token_exports" / f"step_{step}"
        place.mkdir(parents=True)
        for rank in range(ranks):
            lines = [
                json.dumps(prime_rl_record(sample, step, rank), separators=(",", ":"))
                for sample in samples[rank::ranks]
            ]
            (place / f"rank_{rank}.jsonl").write_text("".join(line + "\n" for line in lines))
        if stable:
            (place / "STABLE").touch()
    return folder


def prime_rl_record(sample: Sample, step: int, rank: int = 0) -> dict[str, Any]:
    before = len(sample.prompt)
    length = before + len(sample.ids)
    return {
        "schema_version": 1,
        "step": step,
        "export_step": step,
        "rank": rank,
        "micro_step": 0,
        "micro_sequence_idx": 0,
        "export_sequence_idx": 0,
        "run_id": None,
        "env_name": "search",
        "token_ids": sample.prompt + sample.ids,
        "position_ids": list(range(length)),
        "loss_mask": [False] * before + [bool(kept) for kept in sample.mask],
        "advantages": [sample.reward - 0.5] * length,
        "losses": [{}] * before + [{"rl": {"advantage": 0.5, "mask": bool(kept)}} for kept in sample.mask],
        "rewards": [sample.reward] * length,
        "inference_logprobs": [0.0] * before + sample.rollout,
        "trainer_logprobs": [-9.0] * before + sample.old,
        "entropy": [1.25] * length,
        "mismatch_kl": [0.0] * length,
        "log_importance_ratio": [0.0] * length,
        "importance_ratio": [1.0] * length,
        "prob_delta": [0.0] * length,
        "is_masked": [False] * length,
    }


def nemo_rl(folder: Path, steps: Sequence[Sequence[Sample]], forced: bool = False) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for step, samples in enumerate(steps):
        width = max((len(sample.prompt) + len(sample.ids) for sample in samples), default=0) + 3
        lines = []
        for number, sample in enumerate(samples):
            before, length = len(sample.prompt), len(sample.prompt) + len(sample.ids)

            def padded(values: list[Any], filled: float, before: int = before, width: int = width) -> list[list[Any]]:
                row = [filled] * before + values
                return [row + [filled] * (width - len(row))]

            record = {
                "content": ["question and answer"],
                "rewards": [sample.reward],
                "input_lengths": [length],
                "token_ids": [(sample.prompt + sample.ids + [0] * width)[:width]],
                "token_loss_mask": padded(sample.mask, 0),
                "sample_loss_mask": [1.0],
                "advantages": padded([0.5] * len(sample.ids), 0.5),
                "generation_logprobs": padded(sample.rollout, 0.0),
                "prev_logprobs": padded([0.0] * len(sample.ids) if forced else sample.old, 0.0),
                "idx": number,
            }
            lines.append(json.dumps(record))
        (folder / f"train_data_step{step + 1}.jsonl").write_text("".join(line + "\n" for line in lines))
    return folder


def slime(folder: Path, steps: Sequence[Sequence[Sample]], ranks: int = 2) -> Path:
    """Rank 0 and, as with tensor parallelism, a second rank with the same samples but without log-probabilities."""
    (folder / "train_data").mkdir(parents=True)
    for step, samples in enumerate(steps):
        data: dict[str, Any] = {
            "partition": list(range(len(samples))),
            "tokens": [torch.tensor(sample.prompt + sample.ids) for sample in samples],
            "response_lengths": [len(sample.ids) for sample in samples],
            "loss_masks": [torch.tensor(sample.mask, dtype=torch.int) for sample in samples],
            "raw_reward": [sample.reward for sample in samples],
            "rollout_log_probs": [torch.tensor(sample.rollout) for sample in samples],
        }
        computed = {
            "log_probs": [torch.tensor(sample.old) for sample in samples],
            "ref_log_probs": [torch.tensor(sample.ref) for sample in samples],
            "advantages": [torch.full((len(sample.ids),), 0.5) for sample in samples],
        }
        for rank in range(ranks):
            content = {"rollout_id": step, "rank": rank, "rollout_data": {**data, **(computed if rank == 0 else {})}}
            torch.save(content, folder / "train_data" / f"{step}_{rank}.pt")
    return folder


def skyrl_tensors(samples: Sequence[Sample]) -> dict[str, torch.Tensor]:
    """Return a batch of SkyRL: one left-padded block, everything but the sequences over the last positions."""
    window = max(len(sample.ids) for sample in samples)
    width = window + max(len(sample.prompt) for sample in samples)

    def block(rows: list[list[Any]], size: int, filled: float) -> torch.Tensor:
        return torch.tensor([[filled] * (size - len(row)) + row for row in rows])

    return {
        "sequences": block([sample.prompt + sample.ids for sample in samples], width, 0).long(),
        "attention_mask": block([[1] * len(sample.prompt + sample.ids) for sample in samples], width, 0).long(),
        "response_mask": block([[1] * len(sample.ids) for sample in samples], window, 0).long(),
        "loss_mask": block([sample.mask for sample in samples], window, 0).long(),
        "action_log_probs": block([sample.old for sample in samples], window, 0.0),
        "base_action_log_probs": block([sample.ref for sample in samples], window, 0.0),
        "rollout_logprobs": block([sample.rollout for sample in samples], window, 0.0),
        "rewards": block([[0.0] * (len(sample.ids) - 1) + [sample.reward] for sample in samples], window, 0.0),
        "advantages": block([[0.5] * len(sample.ids) for sample in samples], window, 0.0),
    }


def _numpy_state(batch: dict[str, torch.Tensor]) -> dict[str, Any]:
    state = {}
    for key, value in batch.items():
        kind = str(value.numpy().dtype)
        state[key] = {"format": "numpy", "data": value.numpy().tobytes(), "shape": value.shape, "dtype": kind}
    return state


def _torch_state(batch: dict[str, torch.Tensor]) -> dict[str, Any]:
    state = {}
    for key, value in batch.items():
        buffer = io.BytesIO()
        torch.save(value, buffer)
        state[key] = buffer.getvalue()
    return state


def skyrl(folder: Path, steps: Sequence[Sequence[Sample]], version: str = "numpy") -> Path:
    """Pickle batches as a version of SkyRL does, whose package is gone when they are read.

    ``torch`` and ``both`` are older: the tensors stand in the dict itself, and once more in its state.
    """
    folder.mkdir(parents=True, exist_ok=True)
    name = "skyrl.backends.skyrl_train.training_batch" if version == "numpy" else "skyrl_train.training_batch"
    parts = name.split(".")
    packages = {".".join(parts[:length]): types.ModuleType(parts[0]) for length in range(1, len(parts) + 1)}
    sys.modules.update(packages)
    kind = _skyrl_class(sys.modules[name], name, version)
    for step, samples in enumerate(steps):
        content = pickle.dumps(kind(skyrl_tensors(samples)))
        (folder / f"global_step_{step + 1}_training_input.pkl").write_bytes(content)
    for package in packages:
        del sys.modules[package]
    return folder


def _skyrl_class(module: types.ModuleType, name: str, version: str) -> type:
    class TrainingInputBatch(dict):  # type: ignore[type-arg]
        def __getstate__(self) -> dict[str, Any]:
            return {
                "batch_dict": _torch_state(self) if version == "torch" else _numpy_state(self),
                "batch_size": len(self["sequences"]),
                "device": torch.device("cpu"),
                "metadata": {"uids": ["a", "b"], "response_length": 30},
            }

    def _rebuild_tensor_batch(cls: type, state: dict[str, Any]) -> Any:
        raise AssertionError("a reader must not call the code of a foreign package")

    if version == "numpy":
        reduced = lambda self: (_rebuild_tensor_batch, (type(self), self.__getstate__()))  # noqa: E731
        TrainingInputBatch.__reduce__ = reduced  # type: ignore[method-assign,assignment]
    for thing in (TrainingInputBatch, _rebuild_tensor_batch):
        thing.__module__, thing.__qualname__ = name, thing.__name__
        setattr(module, thing.__name__, thing)
    return TrainingInputBatch
