"""What all tests share: one thread a worker, and examples of hypothesis that are the same in every run.

`make test` starts a worker a core. With a thread pool in each, and in each process that a test starts, it takes twice
as long. `make fuzz` draws new examples.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
from hypothesis import settings

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before anything imports torch

settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("new", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))


@pytest.fixture
def devices_seen() -> Callable[[], AbstractContextManager[set[str]]]:
    """A context that notes the devices of the results of all torch operations in it.

    FakeTensorMode raises where the value of a tensor is needed, but lets `.cpu()` pass.
    """
    from torch import Tensor
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    class Watch(TorchDispatchMode):
        def __enter__(self):  # type: ignore[no-untyped-def]
            self.devices: set[str] = set()
            super().__enter__()
            return self.devices

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            out = func(*args, **(kwargs or {}))
            self.devices.update(x.device.type for x in tree_leaves(out) if isinstance(x, Tensor))
            return out

    return Watch
