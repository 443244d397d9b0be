"""Words and numbers as both views write them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from foreshock.causes import Cause
from foreshock.detect.series_change import Change
from foreshock.diagnosis import Diagnosis
from foreshock.rules.finding import SEVERITIES, Finding
from foreshock.rules.statements import listed

VERDICTS = {
    "healthy": "Healthy",
    "cannot_judge": "Cannot judge",
    "warning": "Warning",
    "critical": "Critical",
}

NO_VALUE = "–"


_NOUNS = {"note": "note", "warning": "warning", "critical": "critical finding"}


def verdict_word(diagnosis: Diagnosis) -> str:
    """Return the verdict; a run of which some rules were not asked is not called healthy."""
    return "No warning" if diagnosis.verdict == "healthy" and diagnosis.not_asked else VERDICTS[diagnosis.verdict]


def verdict_sentence(diagnosis: Diagnosis) -> str:
    """Say in plain words what the verdict of a run means and does not mean."""
    counts = Counter(finding.severity for finding in diagnosis.findings)
    found = [_counted(counts[severity], _NOUNS[severity]) for severity in reversed(SEVERITIES) if counts[severity]]
    gaps = len(diagnosis.cannot_judge)
    sentences = []
    if diagnosis.verdict == "healthy":
        judged = len(diagnosis.judged)
        asked = f"{_counted(judged, 'question')} could be judged, and " if judged else ""
        sentences.append(f"{asked}no rule raised a warning.")
    if diagnosis.verdict == "cannot_judge":
        sentences.append("Nothing alarming was seen, but silence is not health here.")
    if found:
        sentences.append(f"{listed(found)}.")
    if gaps:
        sentences.append(f"{_counted(gaps, 'question')} could not be judged.")
    if diagnosis.not_asked:
        sentences.append(f"Left out by choice: {_counted(len(diagnosis.not_asked), 'rule')}.")
    return " ".join(map(sentence, sentences))


def step_range(first: int, last: int) -> str:
    """Return ``step 3`` or ``steps 3–9``; "" for 0 to 0, which stands for no steps at all."""
    if first == last == 0:
        return ""
    return f"step {first}" if first == last else f"steps {first}–{last}"


def headline(finding: Finding) -> str:
    """Return rule, name, slice and steps of a finding, as they stand above its summary."""
    return " · ".join(part for part in (finding.rule, finding.name, finding.slice, step_range(*finding.steps)) if part)


def separations(causes: Sequence[Cause]) -> list[str]:
    """Return for each cause what separates it from its strongest rival; "" where a cause before it says the same."""
    said: set[str] = {""}
    sentences = []
    for cause in causes:
        new = cause.separating_check not in said
        said.add(cause.separating_check)
        rival = f"From {cause.rival}: " if cause.rival else ""
        sentences.append(rival + cause.separating_check if new else "")
    return sentences


def excluded_sentence(cause: Cause) -> str:
    """Return a cause that the run speaks against, with what does."""
    return f"Not {cause}. {' '.join(cause.evidence_against)}"


def change_words(change: Change) -> str:
    """Return what became of an aggregate: ``no change``, ``up ×1.42 since step 90``, or that it cannot be judged."""
    if change.reason:
        return "cannot be judged"
    if not change.moved:
        return "no change"
    up = change.shift > 0
    if (change.ratio > 1) == up and change.ratio > 0:
        size = f"×{change.ratio:.3g}"
    else:  # around zero, or below it, a ratio says nothing
        size = f"by {abs(change.shift):.2g} standard deviations"
    return f"{'up' if up else 'down'} {size} since step {change.since_step}"


def shown(value: Any) -> str:
    """Return one value of a table as text: three significant digits, whole numbers in full, thousands apart."""
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return _number(value) if isinstance(value, float) else exact(value)


def exact(value: Any) -> str:
    """Return one value of a run's identity as text, nothing rounded."""
    if value is None or value in ({}, [], (), ""):
        return NO_VALUE
    if isinstance(value, (list, tuple)):
        return ", ".join(map(exact, value))
    return str(value)


def columns_of(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the columns of evidence rows, in the order in which they appear."""
    return list(dict.fromkeys(column for row in rows for column in row))


def is_numeric(rows: Iterable[Mapping[str, Any]], column: str) -> bool:
    """Whether a column of evidence rows holds numbers only, and so is set flush right."""
    return all(isinstance(row[column], (int, float)) for row in rows if row.get(column) is not None)


def skipped_sentences(skipped: Mapping[str, int]) -> list[str]:
    """Return one line for each kind of thing that was read or seen and not used."""
    return [f"{reason}: {count}" for reason, count in skipped.items() if count]


def sentence(text: str) -> str:
    """Return a text that begins with a capital letter, unless it begins with the name of a key."""
    first = text.partition(" ")[0]
    return text if "_" in first or "/" in first else text[:1].upper() + text[1:]


def _number(value: float) -> str:
    if math.isnan(value):
        return NO_VALUE
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if value == 0:
        return "0"
    size = abs(value)
    if 1e-4 <= size < 1e6:
        decimals = max(0, 2 - math.floor(math.log10(size)))
        text = f"{value:,.{decimals}f}"
    else:
        text = f"{value:.2e}"
    return text.replace("-", "−", 1) if value < 0 else text


def _counted(count: int, noun: str) -> str:
    number = {1: "one", 2: "two", 3: "three", 4: "four", 5: "five"}.get(count, str(count))
    return f"{number} {noun}" + ("" if count == 1 else "s")
