"""A restricted unpickler for SkyRL's training batches: tensors, arrays and plain containers, and nothing else.

A pickle may name any function of any module and have it called. Here every name is looked up in a short list; any other
is refused before it is imported.
"""

from __future__ import annotations

import io
import pickle
import pickletools
import warnings
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np

from foreshock.errors import ForeshockError, ReadError
from foreshock.sources.dumps import tensors

BATCH_MODULES = ("skyrl_train.training_batch", "skyrl.backends.skyrl_train.training_batch")
LARGEST_MEMO = 10**7
"""Entries. The unpickler makes room for the largest number that a file names, so that a damaged one could ask for
gigabytes."""


class Batch(dict[str, Any]):
    """Stands for SkyRL's ``TensorBatch``: a dict of tensors, which some versions write twice, here and in the state."""

    def __setstate__(self, state: Any) -> None:
        if isinstance(state, dict) and isinstance(state.get("batch_dict"), dict):
            for key, value in state["batch_dict"].items():
                self.setdefault(key, value)


def load(path: Path, content: bytes) -> Any:
    """Unpickle a training batch.

    Raises:
        ReadError: the content is damaged, or names anything but tensors, arrays and plain containers.
        MissingExtra: it holds tensors of torch, which is not installed.
    """
    try:
        if _largest_memo(content) > LARGEST_MEMO:
            raise ReadError(f"{str(path)!r} is a damaged pickle. Pass a whole file.")
        return _Unpickler(path, content).load()
    except ForeshockError:
        raise
    except (*tensors.DAMAGED, RecursionError) as error:
        raise ReadError(
            f"{str(path)!r} is a damaged pickle ({type(error).__name__}: {str(error)[:200]}). Pass a whole file."
        ) from error


def _largest_memo(content: bytes) -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of odd escapes in damaged text
        steps = pickletools.genops(content)
        return max((arg for opcode, arg, _ in steps if "PUT" in opcode.name and isinstance(arg, int)), default=0)


class _Unpickler(pickle.Unpickler):
    def __init__(self, path: Path, content: bytes) -> None:
        super().__init__(io.BytesIO(content))
        self._path = path

    def find_class(self, module: str, name: str, /) -> Any:
        """Return the stand-in or the harmless original of a name."""
        if module in BATCH_MODULES:
            if name in ("TrainingInputBatch", "TensorBatch"):
                return Batch
            if name == "_rebuild_tensor_batch":
                return _rebuilt
        if (module, name) in _ALLOWED:
            return _ALLOWED[module, name]
        if module in ("torch", "torch._utils", "torch.storage"):
            found = _of_torch(module, name)
            if found is not None:
                return found
        raise ReadError(
            f"{str(self._path)!r} holds {module}.{name}, which is no tensor, array or plain container. "
            "It was not loaded: unpickling it could run any code."
        )


def _rebuilt(kind: Any, state: Any) -> Batch:
    batch = Batch()
    batch.__setstate__(state)
    return batch


def _of_torch(module: str, name: str) -> Any:
    if (module, name) == ("torch", "device"):
        return str
    if (module, name) == ("torch.storage", "_load_from_bytes"):
        return tensors.load
    torch = tensors.torch_module()
    if (module, name) in (("torch._utils", "_rebuild_tensor_v2"), ("torch", "Size")):
        return torch.Size if name == "Size" else torch._utils._rebuild_tensor_v2
    found = getattr(torch, name, None) if module == "torch" else None
    return found if isinstance(found, torch.dtype) else None


_ALLOWED: dict[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): OrderedDict,
    ("builtins", "set"): set,
    ("builtins", "frozenset"): frozenset,
    ("builtins", "bytearray"): bytearray,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
}
for _package in ("numpy._core", "numpy.core"):  # since NumPy 2, and before
    _ALLOWED[f"{_package}.multiarray", "_reconstruct"] = np.empty(0).__reduce_ex__(2)[0]
    _ALLOWED[f"{_package}.numeric", "_frombuffer"] = np.empty(0).__reduce_ex__(5)[0]
    _ALLOWED[f"{_package}.multiarray", "scalar"] = np.float64(0).__reduce__()[0]
