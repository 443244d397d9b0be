"""Console logs: what a trainer printed, with progress bars, colours and other text around it.

Four shapes of record are known: the dict lines of the Hugging Face Trainer and TRL, the lines of verl
(``step:12 - actor/entropy:0.31 - …``), JSON objects within text, and ``key=value`` or ``key: value`` pairs beside a
step. A log may hold several; the one that says most is read, and the rest is counted.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from foreshock.errors import ReadError
from foreshock.run import Run
from foreshock.sources import compressed
from foreshock.sources.keys import ALIASES, STEP_KEYS, is_step
from foreshock.sources.rows import Rows, number

DICT, VERL, JSON, PAIRS = "dict lines", "verl lines", "JSON objects", "key=value lines"
OTHER = "records of another shape"

_ANSI = re.compile(r"\x1b(?:\[[0-9;:?<=>]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")
_NUMBER = r"[+-]?(?:\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|nan|inf(?:inity)?|none)"
_DICT_LINE = re.compile(r"\{\s*'[^{}]*\}")
_DICT_PAIR = re.compile(r"""(?:'([^']+)'|"([^"]+)")\s*:\s*('[^']*'|"[^"]*"|[^,}'"]+)""")
_VERL_START = re.compile(r"(?<![\w/])step:(\d+) - ")
_VERL_PAIR = re.compile(rf"\s*(\S+?):\s*(?:[A-Za-z_][\w.]*\()?({_NUMBER})(?=$|[\s)])", re.IGNORECASE)
_STEP = re.compile(
    r"(?<![\w/])(?:global[_ ]|train(?:ing)?[_ ])?(?:step|iteration|iter)s?\s*[=:#]?\s*\[?(\d+)(?![\w.])", re.IGNORECASE
)
_PAIR = re.compile(
    rf"(?<![\w/.@-])([A-Za-z_][\w/.@-]*)\s*[=:]\s*['\"]?(?:[A-Za-z_][\w.]*\()?({_NUMBER})(?![\w.:/])", re.IGNORECASE
)
_STEP_WORDS = {*STEP_KEYS, "steps", "iters", "iterations"}
_LONGEST_TEXT = 2**20  # of a line in which single records are sought by trial
_MOST_TRIALS = 200

_METRICS = {"loss", "epoch", "reward", "kl", "entropy", "grad_norm", "train_runtime"}
_METRICS.update(*(ALIASES[name] for name in _METRICS & ALIASES.keys()))
"""Keys by which a dict or a JSON object is taken for a row of training, not for a configuration."""


def holds_row(start: bytes) -> bool:
    """Say whether a row of training stands among these lines; three of ``key=value``, which any text may hold."""
    shapes = {shape: Rows() for shape in (DICT, VERL, JSON, PAIRS)}
    skipped: Counter[str] = Counter()
    for line in filter(_may_hold_row, start.replace(b"\r", b"\n").split(b"\n")):
        _take_line(line, shapes, skipped)
        if shapes[PAIRS].count >= 3 or shapes[DICT].count or shapes[VERL].count or shapes[JSON].count:
            return True
    return False


def read(path: Path) -> Run:
    """Read a console log, line by line.

    A row without a step in a log of which no row has one is numbered by its place.

    Raises:
        ReadError: the file cannot be opened, or holds no record of a known shape.
    """
    shapes = {DICT: Rows(null_is_nan=True), VERL: Rows(null_is_nan=True), JSON: Rows(), PAIRS: Rows(null_is_nan=True)}
    skipped: Counter[str] = Counter()
    for line in compressed.lines(path, skipped):
        if _may_hold_row(line):
            _take_line(line, shapes, skipped)
    shape, rows = max(shapes.items(), key=lambda item: item[1].values)
    if not rows.count:
        raise ReadError(f"{str(path)!r} holds no dict line, no verl line, no JSON object and no key=value line.")
    rows.skipped.update(skipped)
    rows.skipped[OTHER] += sum(other.count for other in shapes.values() if other is not rows)
    return rows.run(path, f"console log ({shape})")


def _may_hold_row(line: bytes) -> bool:
    """Say by cheap tests whether a line is worth looking at: most lines of a large log are no records."""
    return b"tep" in line or b"{" in line or b"ter" in line or b"TEP" in line


def _take_line(line: bytes, shapes: dict[str, Rows], skipped: Counter[str]) -> None:
    decoded = compressed.text(line)
    if "\x1b" in decoded:
        decoded = _ANSI.sub("", decoded)
    if "step:" in decoded and _VERL_START.search(decoded):
        for row in _verl_rows(decoded, shapes[VERL].skipped):
            shapes[VERL].add(row)
        return
    if "{'" in decoded or "{ '" in decoded:
        found = list(_dict_rows(decoded))
        for row in found:
            shapes[DICT].add(row)
        if not found and _is_torn_dict(decoded):
            skipped[compressed.TORN] += 1
        if found:
            return
    if '{"' in decoded or '{ "' in decoded:
        found = list(_json_rows(decoded[:_LONGEST_TEXT]))
        for row in found:
            shapes[JSON].add(row)
        if found:
            return
    pairs = _pairs(decoded[:_LONGEST_TEXT])
    if pairs:
        shapes[PAIRS].add(pairs)


def _dict_rows(decoded: str) -> Iterator[dict[str, Any]]:
    """Yield the dicts of a line that hold a key of training; other dicts, such as configurations, are not rows."""
    for match in _DICT_LINE.finditer(decoded):
        row = {first or second: value.strip() for first, second, value in _DICT_PAIR.findall(match.group())}
        if _is_training(row):
            yield row


def _is_training(row: dict[str, Any]) -> bool:
    return any(
        (key in _METRICS or key.startswith(("eval_", "rewards/", "train/")) or is_step(key))
        and number(value) is not None
        for key, value in row.items()
    )


def _is_torn_dict(decoded: str) -> bool:
    """Say whether a dict line with a key of training breaks off."""
    rest = decoded[decoded.rfind("{") :]
    return "}" not in rest and _is_training({first or second: 0.0 for first, second, _ in _DICT_PAIR.findall(rest)})


def _verl_rows(decoded: str, skipped: Counter[str]) -> Iterator[dict[str, Any]]:
    starts = list(_VERL_START.finditer(decoded))
    for position, start in enumerate(starts):
        end = starts[position + 1].start() if position + 1 < len(starts) else len(decoded)
        row: dict[str, Any] = {"step": _float(start.group(1))}
        for part in decoded[start.end() : end].split(" - "):
            key, _, value = part.rpartition(":")
            try:
                row[key.strip() or "?"] = float(value)
            except ValueError:  # a wrapped number, or text that follows the last one
                pair = _VERL_PAIR.match(part)
                if pair:
                    row[pair.group(1)] = _float(pair.group(2))
                elif part.strip():
                    skipped["parts of lines that are no key:number"] += 1
        yield row


def _json_rows(decoded: str) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects in a line that hold a key of training."""
    decoder, position, trials = json.JSONDecoder(), 0, 0
    while trials < _MOST_TRIALS and (position := decoded.find("{", position)) >= 0:
        try:
            row, position = decoder.raw_decode(decoded, position)
        except (ValueError, RecursionError):
            position += 1
            trials += 1
            continue
        if isinstance(row, dict) and _is_training(row):
            yield row


def _pairs(decoded: str) -> dict[str, Any] | None:
    """Return the pairs of a line that names a step and at least one number beside it."""
    step = _STEP.search(decoded)
    if step is None:
        return None
    pairs = {key: _float(value) for key, value in _PAIR.findall(decoded) if key.lower() not in _STEP_WORDS}
    return {"step": _float(step.group(1)), **pairs} if pairs else None


def _float(text: str) -> float:
    return float(text) if text.lower() != "none" else math.nan
