"""Early warning for agent RL: the tail of per-token log-ratios, where tool-using agents break first.

Importing this package loads neither torch nor any training framework; each name below is imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from foreshock.adapters.trl import ForeshockCallback, watch
    from foreshock.diagnosis import Diagnosis, diagnose
    from foreshock.run import Run
    from foreshock.sketch import LogRatioSketch
    from foreshock.sources import open_run
    from foreshock.traces.log import TraceLog

__version__ = "0.1.0"

_HOME = {
    "Diagnosis": "foreshock.diagnosis",
    "ForeshockCallback": "foreshock.adapters.trl",
    "LogRatioSketch": "foreshock.sketch",
    "Run": "foreshock.run",
    "TraceLog": "foreshock.traces.log",
    "diagnose": "foreshock.diagnosis",
    "open_run": "foreshock.sources",
    "watch": "foreshock.adapters.trl",
}

__all__ = [
    "Diagnosis",
    "ForeshockCallback",
    "LogRatioSketch",
    "Run",
    "TraceLog",
    "__version__",
    "diagnose",
    "open_run",
    "watch",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'foreshock' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
