"""JSONL metrics: one JSON object a line.

Read are flat and nested objects (nested keys are joined with ``/``): Tinker-style rows with ``step`` or
``progress/step``, W&B histories with ``_step``, and rows that hold their values under ``data`` (verl's file logger),
``values`` (Foreshock's own ``metrics.jsonl``) or ``metrics``.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from foreshock.errors import ReadError
from foreshock.run import Run
from foreshock.sources import compressed
from foreshock.sources.keys import is_step
from foreshock.sources.rows import Rows

FORMAT = "JSONL metrics"
ENVELOPES = ("data", "values", "metrics")

_BARE_WORD = re.compile(r"(?<=[:\[,\s])([+-]?(?:nan|inf(?:inity)?|none))(?=\s*[,}\]])", re.IGNORECASE)


def looks_like(start: bytes) -> bool:
    """Say whether at least half of the first whole lines are JSON objects."""
    lines = [line for line in start.replace(b"\r", b"\n").split(b"\n")[:40] if line.strip()]
    if len(lines) > 1:
        lines.pop()  # the head may end within a line
    found = sum(isinstance(decode_line(line), dict) for line in lines)
    return found > 0 and 2 * found >= len(lines)


def read(path: Path) -> Run:
    """Read JSONL metrics, line by line.

    Raises:
        ReadError: the file cannot be opened, or no line is an object with a number.
    """
    rows = Rows()
    for row in objects(path, rows.skipped):
        for envelope in ENVELOPES:
            if envelope in row:
                row = _opened(row, envelope)
        rows.add(row)
    if not rows.count:
        raise ReadError(f"{str(path)!r} holds no JSON object with a number on a line of its own.")
    return rows.run(path, FORMAT)


def objects(path: Path, skipped: Counter[str]) -> Iterator[dict[str, Any]]:
    """Yield the objects of a file, one a line; a line that holds no object is counted as torn.

    Raises:
        ReadError: the file cannot be opened or read.
    """
    decode = msgspec.json.Decoder().decode
    for line in compressed.lines(path, skipped):
        try:
            row = decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            row = decode_line(line)
        if type(row) is dict:
            yield row
        else:
            skipped[compressed.TORN] += 1


def decode(content: bytes) -> Any:
    """Decode JSON, with the NaN and the infinities that Python's own encoder writes.

    Raises:
        ValueError, RecursionError: it is no JSON, or nested too deep.
    """
    try:
        return msgspec.json.decode(content)
    except (ValueError, RecursionError):
        return json.loads(compressed.text(content))


def decode_line(line: bytes) -> Any:
    """Decode one line of JSON, forgiving NaN and infinities in any spelling and bytes that are not UTF-8; else None."""
    decoded = compressed.text(line).strip("\ufeff \t\r\n")
    if not decoded.startswith("{"):
        return None
    try:
        return json.loads(decoded)  # Python's own decoder knows NaN and Infinity
    except (ValueError, RecursionError):
        pass
    try:
        return msgspec.json.decode(_BARE_WORD.sub(r'"\1"', decoded))
    except (ValueError, RecursionError):
        return None


def _opened(row: dict[str, Any], envelope: str) -> dict[str, Any]:
    """Lift the values out of their envelope, when the row around them says the step."""
    inner = row[envelope]
    if not isinstance(inner, dict) or not any(map(is_step, row)):
        return row
    outer = {key: value for key, value in row.items() if key != envelope}
    return {**inner, **outer}
