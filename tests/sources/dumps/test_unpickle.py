"""Foreign pickles: what is allowed loads, everything else is refused by name before it runs."""

from __future__ import annotations

import collections
import os
import pickle
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from foreshock.errors import ReadError
from foreshock.sources import open_run
from foreshock.sources.dumps import unpickle

HERE = Path("batch.pkl")


class Call:
    """Pickles as a call of any function."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self.call


@pytest.mark.parametrize("protocol", range(3, 6))
def test_tensors_arrays_and_plain_containers_load(protocol: int) -> None:
    content = {
        "tensor": torch.arange(6).reshape(2, 3).T,
        "half": torch.ones(2, dtype=torch.bfloat16),
        "array": np.arange(3.0),
        "scalar": np.float64(1.5),
        "kind": torch.float32,
        "size": torch.ones(2, 3).shape,
        "place": torch.device("cpu"),
        "plain": [1, 2.5, "three", None, True, (4,), {5}, frozenset({6}), b"seven", collections.OrderedDict(a=1)],
    }
    loaded = unpickle.load(HERE, pickle.dumps(content, protocol))
    assert torch.equal(loaded["tensor"], content["tensor"])
    assert torch.equal(loaded["half"], content["half"])
    assert np.array_equal(loaded["array"], content["array"])
    assert (loaded["scalar"], loaded["kind"], loaded["size"]) == (1.5, torch.float32, torch.Size([2, 3]))
    assert loaded["plain"] == content["plain"]


@pytest.mark.parametrize(
    ("function", "arguments", "name"),
    [
        (os.system, ("touch {marker}",), r"(posix|nt)\.system"),
        (eval, ("open('{marker}', 'w')",), r"builtins\.eval"),
        (subprocess.run, (["touch", "{marker}"],), r"subprocess\.run"),
        (getattr, (1, "real"), r"builtins\.getattr"),
        (torch.load, ("{marker}",), r"torch.*\.load"),
        (np.load, ("{marker}",), r"numpy\.load"),
    ],
)
def test_a_call_is_refused_by_name_and_never_made(
    tmp_path: Path, function: Callable[..., Any], arguments: tuple[Any, ...], name: str
) -> None:
    marker = tmp_path / "ran"
    filled = [part.format(marker=marker) if isinstance(part, str) else part for part in arguments]
    filled = [[word.format(marker=marker) for word in part] if isinstance(part, list) else part for part in filled]
    with pytest.raises(ReadError, match=name):
        unpickle.load(HERE, pickle.dumps({"sequences": Call(function, *filled)}))
    assert not marker.exists()


def test_a_tensor_that_hides_a_pickle_is_loaded_with_weights_only(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    inner = tmp_path / "inner.pt"
    torch.save({"storage": Call(os.system, f"touch {marker}")}, inner)
    outer = pickle.dumps(Call(torch.storage._load_from_bytes, inner.read_bytes()))
    with pytest.raises(ReadError, match="system"):
        unpickle.load(HERE, outer)
    assert not marker.exists()


def test_a_refused_file_is_named_by_the_command_that_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "global_step_1_training_input.pkl"
    path.write_bytes(pickle.dumps({"skyrl_train.training_batch": 1, "x": Call(os.system, "true")}))
    with pytest.raises(ReadError, match=r"holds (posix|nt)\.system, which is no tensor"):
        open_run(path)


def test_a_number_that_would_make_the_unpickler_ask_for_gigabytes_is_refused() -> None:
    with pytest.raises(ReadError, match="damaged pickle"):
        unpickle.load(HERE, b"\x80\x04K\x01r\xff\xff\xff\xff.")
