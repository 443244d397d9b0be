"""Declared rules: thresholds that a user writes in TOML, one ``[[rule]]`` each.

All fields of a rule, the first four required::

    [[rule]]
    id = "short-answers"
    metric = "completions/mean_length"     # a key of docs/sources.md, or any other that is logged
    condition = "drop(60%)"                # see foreshock.rules.conditions
    message = "Answers have become short."
    severity = "warning"                   # or note, critical
    window = 10                            # latest rows that are looked at
    min_steps = 100                        # steps below which nothing is said
    trainers = ["GRPOTrainer"]             # all, when left out
    reference = "https://…"
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foreshock.errors import InputError, RuleError
from foreshock.rules.conditions import Condition, parse_condition
from foreshock.rules.finding import SEVERITIES, CannotJudge, Finding, RuleResult
from foreshock.rules.series import longest_course, rows_of
from foreshock.rules.statements import segment_rows
from foreshock.run import Run

CERTAINTY = "A heuristic: a threshold that a user has set, whose rate of false alarms is not known."

DOCUMENTATION = """{id}: {message}

What: {metric}, the mean of its latest {window} rows ({condition}).
Why it matters: {message}
Known problems: {certainty}
Example: none.
Options: those of its table in {file}.
References: {reference}
"""


def is_identifier(name: str) -> bool:
    """Say whether a rule may be called so: lower-case words joined by hyphens."""
    return re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name) is not None


@dataclass(frozen=True, slots=True)
class _Field:
    expected: str
    fits: Callable[[Any], bool]
    default: Any = None


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_count(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


FIELDS: Mapping[str, _Field] = {
    "id": _Field("lower-case words joined by hyphens", lambda value: _is_text(value) and is_identifier(value)),
    "metric": _Field("the name of a logged key", _is_text),
    "condition": _Field("a condition as text", _is_text),
    "message": _Field("a sentence", _is_text),
    "severity": _Field(f"one of {', '.join(SEVERITIES)}", lambda value: value in SEVERITIES, "warning"),
    "window": _Field("a whole number from 1 on", lambda value: _is_count(value, 1), 10),
    "min_steps": _Field("a whole number from 0 on", lambda value: _is_count(value, 0), 0),
    "trainers": _Field(
        "a list of trainer class names", lambda value: isinstance(value, list) and all(map(_is_text, value)), []
    ),
    "reference": _Field("text", _is_text, "none."),
}
"""Field → what it may hold; one without a default must be there."""


class DeclaredRule:
    """One table of a TOML file as a rule, with a documentation of its own."""

    def __init__(self, values: Mapping[str, Any], condition: Condition, file: str) -> None:
        self.ID: str = values["id"]
        self.NEEDS: str = values["metric"]
        self.SEVERITIES: tuple[str, ...] = (values["severity"],)
        self.__doc__ = DOCUMENTATION.format(**values, certainty=CERTAINTY, file=file)
        self._values = values
        self._condition = condition

    def check(self, run: Run) -> RuleResult:
        """Judge the latest rows of the metric; say what is missing where that cannot be done."""
        trainers, trainer = self._values["trainers"], run.identity.get("trainer")
        if trainers and trainer not in trainers:
            return RuleResult() if trainer else self._gap("the run does not say which trainer it had.")
        if run.last_step < self._values["min_steps"]:
            return self._gap(f"the run has {run.last_step} steps, {self._values['min_steps']} are asked for.")
        metric, window = self._values["metric"], self._values["window"]
        steps, values = rows_of(run, metric)
        if values.size < window:
            return self._gap(_too_few(run, metric, values.size, window))
        early = longest_course(run, metric) if self._condition.is_relative else None
        if self._condition.is_relative and (early is None or not early.early_level):
            return self._gap(f"{metric} has no level at the start of the run to compare with.")
        level = early.early_level if early is not None else float("nan")
        if not self._condition.holds(values[-window:], level):
            return RuleResult(judged=(f"not {self._condition.text} ({metric})",))
        compared = f", {level:.3g} at the start of the run" if early is not None else ""
        return RuleResult(
            (
                Finding(
                    rule=self.ID,
                    severity=self._values["severity"],
                    steps=(int(steps[-window]), run.last_step),
                    summary=(
                        f"{self._values['message']} {metric} meets {self._condition.text}: mean "
                        f"{values[-window:].mean():.3g}, largest {values[-window:].max():.3g} of the last {window} "
                        f"rows{compared}."
                    ),
                    evidence=segment_rows(run, dict.fromkeys((metric, "reward"))),
                    certainty=CERTAINTY,
                ),
            )
        )

    def _gap(self, reason: str) -> RuleResult:
        return RuleResult(cannot_judge=(CannotJudge(self.ID, reason),))


def read_rules(path: Path) -> tuple[DeclaredRule, ...]:
    """Return the rules of a TOML file.

    Raises:
        RuleError: it is no TOML, or a rule in it is not complete or not right; the message names rule and field.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RuleError(f"{path} cannot be read as TOML ({error}). Expected one [[rule]] table a rule.") from error
    tables = document.get("rule")
    whole = isinstance(tables, list) and all(isinstance(table, dict) for table in tables)
    if not whole or set(document) != {"rule"}:
        raise RuleError(f"{path}: got {sorted(document) or 'nothing'} at the top, expected only [[rule]] tables.")
    return tuple(_read(table, f"{path}: rule {number}", path) for number, table in enumerate(tables or (), start=1))


def _read(table: Mapping[str, Any], where: str, path: Path) -> DeclaredRule:
    where += f" ({table['id']})" if _is_text(table.get("id")) else ""
    for name in table:
        if name not in FIELDS:
            raise RuleError(f"{where}: got the field {name!r}, expected one of {', '.join(FIELDS)}.{_near(name)}")
    values = {}
    for name, field in FIELDS.items():
        value = table.get(name, field.default)
        if value is None:
            raise RuleError(f"{where}: got no field {name!r}, expected {field.expected}.")
        if not field.fits(value):
            raise RuleError(f"{where}: field {name!r}: got {value!r}, expected {field.expected}.")
        values[name] = value
    try:
        condition = parse_condition(values["condition"])
    except InputError as error:
        raise RuleError(f"{where}: field 'condition': {error}.") from error
    return DeclaredRule(values, condition, path.name)


def _near(name: str) -> str:
    near = difflib.get_close_matches(name, FIELDS, n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


def _too_few(run: Run, metric: str, rows: int, window: int) -> str:
    if metric in run.series:
        return f"{metric} has {rows} finite rows, {window} are asked for."
    near = difflib.get_close_matches(metric, run.series, n=3)
    return f"{metric} is not logged." + (f" Logged are {', '.join(near)}." if near else "")
