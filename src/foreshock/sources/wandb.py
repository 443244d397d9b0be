"""W&B's own ``run-….wandb`` file, which every run writes beside what it sends: history, configuration, summary.

The file is a log in the format of LevelDB (blocks of 32 kB, records that may span them, a CRC32 each) whose records are
messages of ``wandb/proto/wandb_internal.proto``.
"""

from __future__ import annotations

import struct
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from foreshock.errors import ReadError
from foreshock.run import Run
from foreshock.sources import compressed, protobuf
from foreshock.sources.jsonl import decode
from foreshock.sources.rows import Rows, number

FORMAT = "W&B .wandb file"
PATTERN = "*.wandb"

DAMAGED = "damaged records"
TORN = "torn ends of W&B files"

_MAGIC = b":W&B\xe1\xbe\x00"
_BLOCK = 2**15
_HEADER = struct.Struct("<IHB")
_DAMAGED, _FULL, _FIRST, _MIDDLE, _LAST = range(5)
_KINDS = (_FULL, _FIRST, _MIDDLE, _LAST)
_HISTORY, _SUMMARY, _CONFIG, _RUN = 2, 3, 5, 17  # fields of a Record
_RUN_TEXTS = {1: "run_id", 3: "project", 8: "name"}


def looks_like(start: bytes) -> bool:
    """Say whether this is the header of a W&B file."""
    return start.startswith(_MAGIC)


def has_file(folder: Path) -> bool:
    """Say whether a folder is that of a W&B run."""
    return any(path.is_file() for path in folder.glob(PATTERN))


def read_folder(folder: Path) -> Run:
    """Read the W&B file of a run's folder.

    Raises:
        ReadError: the folder holds several, or the one cannot be read.
    """
    files = sorted(path for path in folder.glob(PATTERN) if path.is_file())
    if len(files) > 1:
        raise ReadError(f"{str(folder)!r} holds {len(files)} W&B files. Pass one: {', '.join(map(str, files[:8]))}.")
    return read(files[0])


def read(path: Path) -> Run:
    """Read a W&B file. ``run.identity["config"]`` holds the configuration, ``["summary"]`` numbers set by hand.

    Raises:
        ReadError: the file cannot be opened, is no W&B file, or holds no history.
    """
    rows = Rows()
    identity: dict[str, Any] = {"wandb": {}, "config": {}}
    summary: dict[str, Any] = {}
    for record in _records(path, rows.skipped):
        try:
            _take(record, rows, identity, summary)
        except ValueError:
            rows.skipped[DAMAGED] += 1
    if not rows.count:
        raise ReadError(f"{str(path)!r} is a W&B file without a row of history.")
    run = rows.run(path, FORMAT)
    source = run.identity["source"]
    logged = {*source["keys"], source["step_key"]}
    own = {key: found for key, value in summary.items() if key not in logged and (found := number(value)) is not None}
    run.identity = {**run.identity, **identity, "summary": own | run.identity.get("summary", {})}
    return run


def _take(record: bytes, rows: Rows, identity: dict[str, Any], summary: dict[str, Any]) -> None:
    for field, kind, _, data in protobuf.fields(record):
        if kind != protobuf.LENGTH:
            continue
        if field == _HISTORY:
            rows.add(dict(sorted(_items(data).items())))  # W&B writes the keys of each row in another order
        elif field == _SUMMARY:
            summary.update(_items(data))
        elif field == _CONFIG:
            identity["config"].update(_items(data))
        elif field == _RUN:
            for number_, wire, _, part in protobuf.fields(data):
                if wire == protobuf.LENGTH and number_ == 4:
                    identity["config"].update(_items(part))
                elif wire == protobuf.LENGTH and number_ in _RUN_TEXTS:
                    identity["wandb"][_RUN_TEXTS[number_]] = part.decode("utf-8", "replace")


def _items(message: bytes) -> dict[str, Any]:
    """Return the keys and values of a history, summary or configuration; a nested key is joined with ``/``."""
    items: dict[str, Any] = {}
    for field, kind, _, data in protobuf.fields(message):
        if (field, kind) == (1, protobuf.LENGTH):
            key, value = _item(data)
            if key.partition("/")[0] != "_wandb":  # its own bookkeeping
                items[key] = value
    return items


def _item(message: bytes) -> tuple[str, Any]:
    key, nested = "", list[str]()
    value: Any = None
    for field, kind, integer, data in protobuf.fields(message):
        if kind == protobuf.LENGTH and field == 1:
            key = data.decode("utf-8", "replace")
        elif kind == protobuf.LENGTH and field == 2:
            nested.append(data.decode("utf-8", "replace"))
        elif kind == protobuf.LENGTH and field in (8, 16):  # json, value_json
            value = _decode(data)
        elif kind == protobuf.LENGTH and field == 7:  # text
            value = data.decode("utf-8", "replace")
        elif kind == protobuf.VARINT and field == 5:  # integer, zigzag
            value = (integer >> 1) ^ -(integer & 1)
        elif kind == protobuf.VARINT and field == 4:  # boolean
            value = bool(integer)
        elif kind == protobuf.FIXED64 and field == 6:  # number
            value = struct.unpack("<d", data)[0]
    return key or "/".join(nested), value


def _decode(data: bytes) -> Any:
    try:
        return decode(data)
    except (ValueError, RecursionError):
        return compressed.text(data)


def _records(path: Path, skipped: Counter[str]) -> Iterator[bytes]:
    """Yield the whole records, joined where they span blocks."""
    held: list[bytes] | None = None
    for kind, data in _fragments(path, skipped):
        if kind == _FULL:
            yield data
            held = None
        elif kind == _FIRST:
            held = [data]
        elif kind == _DAMAGED or held is None:
            held = None
        else:
            held.append(data)
            if kind == _LAST:
                yield b"".join(held)
                held = None


def _fragments(path: Path, skipped: Counter[str]) -> Iterator[tuple[int, bytes]]:
    """Yield kind and bytes of each part of a record; with a damaged one the rest of its block is lost."""
    stream = compressed.Bytes(path, skipped)
    if not looks_like(stream.read(len(_MAGIC))):
        raise ReadError(f"{str(path)!r} is no W&B file: it does not start with {_MAGIC!r}.")
    size = _BLOCK - len(_MAGIC)
    while block := stream.read(size):
        is_last, size = len(block) < size, _BLOCK
        at = 0
        while at + _HEADER.size <= len(block):
            checksum, length, kind = _HEADER.unpack_from(block, at)
            at += _HEADER.size + length
            data = block[at - length : at]
            if is_last and at > len(block):
                break
            if kind not in _KINDS or zlib.crc32(data, zlib.crc32(bytes([kind]))) != checksum:
                skipped[DAMAGED] += 1
                yield _DAMAGED, b""
                at = len(block)
                break
            yield kind, data
        if is_last and at != len(block):
            skipped[TORN] += 1
