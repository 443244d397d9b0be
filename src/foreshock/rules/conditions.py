"""The conditions of declared rules: a small grammar, and what each form says of a series.

The forms::

    < 0.1   <= 0.1   > 3   >= 3   == 0     the mean of the latest rows
    outside(0.8, 1.2)                      the same, below the first or above the second
    drop(50%)   rise(200%)                 the same, against the run's own early level
    spike(5x)                              the largest of the latest rows, against the early level
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass

from foreshock.errors import InputError
from foreshock.rules.series import Floats

FORMS = "< a, <= a, > a, >= a, == a, outside(a, b), drop(N%), rise(N%) or spike(Nx)"

_NUMBER = r"\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*"
_COMPARED = re.compile(rf"(<=|>=|==|<|>){_NUMBER}")
_OUTSIDE = re.compile(rf"outside\({_NUMBER},{_NUMBER}\)")
_MOVED = re.compile(rf"(drop|rise)\({_NUMBER}%\s*\)")
_SPIKE = re.compile(rf"spike\({_NUMBER}x\s*\)")

_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": lambda value, bound: math.isclose(value, bound, rel_tol=1e-9, abs_tol=1e-12),
}


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition as it was written. ``holds`` takes the latest rows ``(rows,)`` and the early level of the run.

    Where ``is_relative`` is False the early level is not looked at, and may be NaN.
    """

    text: str
    is_relative: bool
    holds: Callable[[Floats, float], bool]


def parse_condition(text: str) -> Condition:
    """Return the condition that a text states.

    Raises:
        InputError: it has none of the forms, or its numbers make no sense.
    """
    stated = text.strip()
    for form, read in ((_COMPARED, _compared), (_OUTSIDE, _outside), (_MOVED, _moved), (_SPIKE, _spike)):
        if found := form.fullmatch(stated):
            return read(stated, *found.groups())
    raise InputError(f"got {text!r}, expected {FORMS}")


def _compared(text: str, sign: str, bound: str) -> Condition:
    compare, limit = _COMPARISONS[sign], float(bound)
    return Condition(text, False, lambda recent, early: compare(float(recent.mean()), limit))


def _outside(text: str, low: str, high: str) -> Condition:
    lowest, highest = float(low), float(high)
    if not lowest < highest:
        raise InputError(f"got {text!r}, expected outside(a, b) with a below b")
    return Condition(text, False, lambda recent, early: not lowest <= float(recent.mean()) <= highest)


def _moved(text: str, verb: str, percent: str) -> Condition:
    share, sign = float(percent) / 100, 1 if verb == "rise" else -1
    if not share > 0:
        raise InputError(f"got {text!r}, expected {verb}(N%) with N above 0")
    return Condition(text, True, lambda recent, early: sign * (float(recent.mean()) - early) >= share * abs(early))


def _spike(text: str, times: str) -> Condition:
    factor = float(times)
    if not factor > 1:
        raise InputError(f"got {text!r}, expected spike(Nx) with N above 1")
    return Condition(text, True, lambda recent, early: float(recent.max()) >= factor * early)
