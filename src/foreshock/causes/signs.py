"""Signs: what a run shows that speaks for or against a cause, one sentence each.

A sign is a function of :class:`Facts` that returns its sentence, with the numbers that it rests on, or "" when the run
does not show it or does not hold what it needs. States of series are those of :attr:`foreshock.rules.series.Course
.direction`: against the run's own level after the warm-up, a move is more than noise and large enough to be seen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from foreshock.batch import OLD_ROLLOUT, POLICY_ROLLOUT, POST_TOOL, SLICES, TEXT_ONLY
from foreshock.rules.finding import Finding
from foreshock.rules.non_finite import KEYS
from foreshock.rules.series import longest_course
from foreshock.rules.statements import listed
from foreshock.rules.tail_course import MINIMUM_GROWTH, tail_course
from foreshock.rules.tail_effect import effect_of
from foreshock.run import Run

Rules = Collection[str]
"""Identifiers of rules."""


@dataclass(frozen=True)
class Facts:
    """A run and its findings of warning and critical severity."""

    run: Run
    findings: Sequence[Finding]

    def found(self, rules: Rules) -> bool:
        """Say whether one of these rules has a finding."""
        return any(finding.rule in rules for finding in self.findings)

    @cached_property
    def tails(self) -> dict[str, float]:
        """By what factor p99 of |log-ratio| of the judged pair has grown, by slice; empty where it cannot be judged."""
        pair = self.run.pair
        course = None if pair is None else tail_course(self.run, pair)
        if course is None or not course.level.beyond.reference:
            return {}
        effect = effect_of(course, course.contrasted, course.level.beyond)
        return {name: effect.p99_growth(name) for name in SLICES}


Sign = Callable[[Facts], str]

_STATES = {"up": "has risen from {} to {}", "down": "has fallen from {} to {}", "flat": "is flat ({}, then {})"}
_SLICES = {TEXT_ONLY: "text-only", POST_TOOL: "post-tool"}


def went(key: str, state: str, so: str = "", *, unless: Rules = (), below: float = math.inf) -> Sign:
    """Return the sign that a logged key went ``up``, ``down`` or stayed ``flat``, and is under ``below`` now.

    ``so``: what follows from it. ``unless``: rules whose findings say as much, so that it does not count twice.
    """

    def sign(facts: Facts) -> str:
        judged = longest_course(facts.run, key)
        if judged is None or judged.direction != state or not judged.late_level < below:
            return ""
        if facts.found(unless):
            return ""
        levels = _STATES[state].format(f"{judged.early_level:.3g}", f"{judged.late_level:.3g}")
        return _sentence(f"{key} {levels}", so)

    return sign


def all_flat(*keys: str, so: str = "", unless: Rules = ()) -> Sign:
    """Return the sign that none of these keys has moved, as far as they are logged, and at least two are.

    The options are those of :func:`went`.
    """

    def sign(facts: Facts) -> str:
        judged = {key: found.direction for key in keys if (found := longest_course(facts.run, key))}
        if len(judged) < 2 or set(judged.values()) != {"flat"} or facts.found(unless):
            return ""
        return _sentence(f"{listed(list(judged))} are flat", so)

    return sign


def tails(text_only: str, post_tool: str, so: str = "") -> Sign:
    """Return the sign of a state of both tails: each ``up`` (p99 of |log-ratio| at least ×1.2), ``flat`` or "" for any.

    The factor is the heuristic of the tail rule, :data:`foreshock.rules.tail_course.MINIMUM_GROWTH`.
    """
    wanted = {TEXT_ONLY: text_only, POST_TOOL: post_tool}

    def sign(facts: Facts) -> str:
        asked = {name: state for name, state in wanted.items() if state}
        if any(_tail_state(facts.tails.get(name)) != state for name, state in asked.items()):
            return ""
        parts = [
            f"the {_SLICES[name]} tail {'has grown' if state == 'up' else 'is flat'} (×{facts.tails[name]:.2f})"
            for name, state in asked.items()
        ]
        return _sentence(" and ".join(parts).capitalize(), so)

    return sign


def named(name: str, so: str) -> Sign:
    """Return the sign that a finding has this name."""
    return lambda facts: so if any(finding.name == name for finding in facts.findings) else ""


def samples_itself(facts: Facts) -> str:
    """Say that no engine but the trainer has sampled, as its configuration tells."""
    config = facts.run.identity.get("config")
    engine = config.get("use_vllm") if isinstance(config, Mapping) else None
    recorded = any(pair in block.sketches for block in facts.run.blocks[-1:] for pair in (OLD_ROLLOUT, POLICY_ROLLOUT))
    if engine is not False or recorded:
        return ""
    return _sentence("The trainer samples itself (use_vllm is false)", "there is no second engine to differ")


def all_finite(facts: Facts) -> str:
    """Say that every logged loss, reward and gradient norm is finite."""
    logged = [key for key in KEYS if key in facts.run.series]
    if not logged or any(facts.run.series[key].not_finite[0] for key in logged):
        return ""
    return _sentence(f"Every value of {listed(logged)} is finite", "")


def _tail_state(growth: float | None) -> str:
    if growth is None:
        return "unknown"
    return "up" if growth >= MINIMUM_GROWTH else "flat" if growth > 1 / MINIMUM_GROWTH else "down"


def _sentence(fact: str, so: str) -> str:
    return fact + (f": {so}." if so else ".")
