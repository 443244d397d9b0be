"""Watching TRL trainers."""

from __future__ import annotations

from foreshock.errors import MissingExtra

try:
    import transformers as _transformers
    import trl as _trl
except ImportError as error:
    raise MissingExtra("Watching a TRL trainer", "'foreshock[trl]'") from error

del _transformers, _trl

from foreshock.adapters.trl.callback import ForeshockCallback, watch  # noqa: E402

__all__ = ["ForeshockCallback", "watch"]
