"""Tensors in foreign files, loaded without running anything that such a file may say: the readers' one use of torch."""

from __future__ import annotations

import io
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from foreshock.errors import MissingExtra, ReadError

DAMAGED = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    EOFError,
    ImportError,
    LookupError,
    MemoryError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
    pickle.UnpicklingError,
    struct.error,
)
"""What unpickling and torch raise on damaged files, whose bytes may say anything."""


def torch_module() -> Any:
    """Return torch.

    Raises:
        MissingExtra: torch is not installed.
    """
    try:
        import torch
    except ImportError as error:
        raise MissingExtra("Reading tensors of slime or SkyRL", "'foreshock[dumps]'") from error
    return torch


def load(source: Path | bytes) -> Any:
    """Load what ``torch.save`` wrote, on the CPU, with ``weights_only=True``: tensors and plain containers.

    Raises:
        ReadError: the file is damaged, or holds anything else; the message names what was found.
        MissingExtra: torch is not installed.
    """
    torch = torch_module()
    file = io.BytesIO(source) if isinstance(source, bytes) else str(source)
    try:
        return torch.load(file, map_location="cpu", weights_only=True)
    except DAMAGED as error:
        what = repr(str(source)) if isinstance(source, Path) else "a tensor inside the file"
        reason = next((line for line in str(error).splitlines() if "GLOBAL" in line or "Unsupported" in line), "")
        reason = (reason or str(error).partition("\n")[0])[:300]
        raise ReadError(
            f"{what} cannot be loaded as tensors and plain containers ({type(error).__name__}: {reason}). "
            "Foreshock runs no code of foreign files. Pass a whole dump that holds nothing else."
        ) from error


def array(value: Any) -> npt.NDArray[Any]:
    """Return a tensor or a list of numbers as a NumPy array, bfloat16 as float32.

    Raises:
        ReadError: the value is neither.
    """
    try:
        if hasattr(value, "detach"):
            value = value.detach().cpu()
            value = (value.float() if value.is_floating_point() else value).numpy()
        found = np.asarray(value)
    except DAMAGED as error:
        raise ReadError(f"expected a tensor of numbers, got {type(value).__name__} ({error}).") from error
    if found.dtype.kind not in "fiub":
        raise ReadError(f"expected a tensor of numbers, got {type(value).__name__} of {found.dtype}.")
    return found
