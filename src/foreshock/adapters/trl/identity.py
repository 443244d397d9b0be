"""What a TRL trainer is made of: model, tokenizer, data and configuration."""

from __future__ import annotations

import hashlib
from typing import Any

from foreshock.run.identity import environment_identity, is_secret


def trainer_identity(trainer: Any) -> dict[str, Any]:
    """Return the identity of a run as plain values; a part that cannot be read is None, never an error."""
    accelerator = trainer.accelerator
    parts = {
        "trainer": lambda: type(trainer).__name__,
        "model": lambda: _model(accelerator.unwrap_model(trainer.model)),
        "tokenizer": lambda: _tokenizer(trainer.processing_class),
        "dataset": lambda: _dataset(trainer.train_dataset),
        "workers": lambda: {
            "world_size": accelerator.num_processes,
            "device": str(accelerator.device),
            "distributed": str(accelerator.distributed_type),
        },
        "config": lambda: _config(trainer.args),
        "environment": environment_identity,
    }
    return {name: _safely(read) for name, read in parts.items()}


def _safely(read: Any) -> Any:
    try:
        return read()
    except Exception:  # identity is read from objects of any make; one odd part must not hide the others
        return None


def _model(model: Any) -> dict[str, Any]:
    parameters = list(model.parameters())
    config = getattr(model, "config", None)
    return {
        "class": type(model).__name__,
        "name": getattr(config, "_name_or_path", None) or None,
        "type": getattr(config, "model_type", None),
        "parameters": sum(parameter.numel() for parameter in parameters),
        "trainable": sum(parameter.numel() for parameter in parameters if parameter.requires_grad),
        "dtype": str(parameters[0].dtype).removeprefix("torch."),
        "adapters": {name: type(adapter).__name__ for name, adapter in getattr(model, "peft_config", {}).items()},
    }


def _tokenizer(tokenizer: Any) -> dict[str, Any]:
    template = getattr(tokenizer, "chat_template", None)
    inner = getattr(tokenizer, "tokenizer", tokenizer)
    return {
        "class": type(tokenizer).__name__,
        "name": getattr(inner, "name_or_path", None) or None,
        "vocabulary": len(inner),
        "chat_template_sha256": hashlib.sha256(str(template).encode()).hexdigest()[:16] if template else None,
    }


def _dataset(dataset: Any) -> dict[str, Any]:
    return {
        "class": type(dataset).__name__,
        "rows": len(dataset) if hasattr(dataset, "__len__") else None,
        "columns": getattr(dataset, "column_names", None),
        "fingerprint": getattr(dataset, "_fingerprint", None),
    }


def _config(arguments: Any) -> dict[str, Any]:
    """Return the training arguments that can be written as JSON, without secrets."""
    return {
        name: value
        for name, value in sorted(arguments.to_dict().items())
        if not is_secret(name) and isinstance(value, (str, int, float, bool, list, type(None)))
    }
