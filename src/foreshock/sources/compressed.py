"""Opening a log: plain, gzip or Zstandard, told apart by the first bytes; and its lines, one by one."""

from __future__ import annotations

import codecs
import gzip
import importlib
import math
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO, cast

from foreshock.errors import ReadError
from foreshock.sources.progress import tracked

LONGEST_LINE = 16 * 2**20
"""Bytes. A longer line is no log line: it is skipped and counted."""

_CHUNK = 2**18
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_CONTROLS = bytes(set(range(32)) - set(b"\t\n\r\b\x1b"))
TORN_END = "torn ends of compressed files"
TORN = "torn or damaged lines"


@contextmanager
def open_stream(path: Path) -> Iterator[BinaryIO]:
    """Open a file for reading its uncompressed bytes.

    Raises:
        ReadError: the file cannot be opened, or is Zstandard and no package that reads it is installed.
    """
    with ExitStack() as stack:
        try:
            file = stack.enter_context(open(path, "rb"))
            start = file.read(4)
            file.seek(0)
        except OSError as error:
            raise ReadError(
                f"{str(path)!r} cannot be opened ({error.strerror or error}). Pass a readable file."
            ) from error
        if start.startswith(_GZIP):
            yield cast(BinaryIO, stack.enter_context(gzip.GzipFile(fileobj=file)))
        elif start == _ZSTD:
            yield stack.enter_context(_zstd_stream(file, path))
        else:
            yield file


def chunks(path: Path, skipped: Counter[str]) -> Iterator[bytes]:
    """Yield the uncompressed bytes in pieces; what a torn or damaged end hides is counted, not raised.

    UTF-16, which some shells write when output is redirected, becomes UTF-8.

    Raises:
        ReadError: the file cannot be opened or read.
    """
    decoder = None
    for position, chunk in enumerate(raw_chunks(path, skipped)):
        if position == 0 and chunk.startswith(_UTF16):
            decoder = codecs.getincrementaldecoder("utf-16")(errors="replace")
        yield chunk if decoder is None else decoder.decode(chunk).encode("utf-8", "replace")


def raw_chunks(path: Path, skipped: Counter[str]) -> Iterator[bytes]:
    """Yield the uncompressed bytes in pieces, as :func:`chunks` does, but leave UTF-16 as it is.

    A person at a terminal sees how far that is, once it has taken a while.

    Raises:
        ReadError: the file cannot be opened or read.
    """
    return tracked(_read_chunks(path, skipped), _chunk_count(path), f"pieces of {path.name}")


def _chunk_count(path: Path) -> int | None:
    """Return how many pieces a plain file has; None for a compressed one, and where that cannot be known."""
    try:
        with open(path, "rb") as file:
            start = file.read(4)
        is_plain = not start.startswith(_GZIP) and start != _ZSTD
        return math.ceil(path.stat().st_size / _CHUNK) if is_plain else None
    except OSError:  # reading it says why
        return None


def _read_chunks(path: Path, skipped: Counter[str]) -> Iterator[bytes]:
    damaged: tuple[type[Exception], ...] = (EOFError, zlib.error, gzip.BadGzipFile, *_zstd_errors())
    with open_stream(path) as stream:
        # read1 hands over what was decompressed before a torn end; read would lose it.
        read = stream.read if isinstance(stream, BufferedReader) else getattr(stream, "read1", stream.read)
        while True:
            try:
                chunk = read(_CHUNK)
            except damaged:
                skipped[TORN_END] += 1
                return
            except OSError as error:
                raise ReadError(
                    f"{str(path)!r} cannot be read ({error.strerror or error}). Copy it and retry."
                ) from error
            if not chunk:
                return
            yield chunk


class Bytes:
    """The uncompressed bytes of a file, handed out in the lengths that a binary format asks for."""

    def __init__(self, path: Path, skipped: Counter[str]) -> None:
        self._chunks = raw_chunks(path, skipped)
        self._held = b""
        self._at = 0

    def read(self, size: int) -> bytes:
        """Return the next ``size`` bytes; fewer only at the end of the file.

        Raises:
            ReadError: the file cannot be opened or read.
        """
        missing = size - (len(self._held) - self._at)
        if missing > 0:
            parts = [self._held[self._at :]]
            while missing > 0 and (chunk := next(self._chunks, b"")):
                parts.append(chunk)
                missing -= len(chunk)
            self._held, self._at = b"".join(parts), 0
        start, self._at = self._at, min(self._at + size, len(self._held))
        return self._held[start : self._at]

    def give_back(self, unused: bytes) -> None:
        """Put bytes back, to be read next."""
        self._held, self._at = unused + self._held[self._at :], 0


def head(path: Path, skipped: Counter[str], size: int = 2**16) -> bytes:
    """Return up to ``size`` of the first uncompressed bytes, without a byte order mark.

    Raises:
        ReadError: the file cannot be opened or read.
    """
    start = b""
    for chunk in chunks(path, skipped):
        start += chunk
        if len(start) >= size:
            break
    return start[:size].removeprefix(codecs.BOM_UTF8)


def is_binary(start: bytes) -> bool:
    """Say whether over a twentieth of these bytes are control characters that no text needs."""
    return 20 * (len(start) - len(start.translate(None, _CONTROLS))) > len(start)


def lines(path: Path, skipped: Counter[str], longest: int | None = None) -> Iterator[bytes]:
    """Yield the non-empty lines. A carriage return ends a line too, so that a progress bar hides no record.

    Holds one line at most; a line over ``longest`` bytes (:data:`LONGEST_LINE`) is skipped and counted.
    """
    longest = LONGEST_LINE if longest is None else longest
    held, too_long, first = b"", False, True
    for chunk in chunks(path, skipped):
        if first:
            chunk, first = chunk.removeprefix(codecs.BOM_UTF8), False
        pieces = (chunk.replace(b"\r", b"\n") if b"\r" in chunk else chunk).split(b"\n")
        if len(pieces) > 1:
            if not too_long:
                pieces[0] = held + pieces[0]
                yield from _without_blanks(pieces[:-1])
            else:
                yield from _without_blanks(pieces[1:-1])
            held, too_long = pieces[-1], False
        elif not too_long:
            held += pieces[0]
        if len(held) > longest:
            skipped[f"lines over {longest // 2**20} MB"] += 1
            held, too_long = b"", True
    if held:
        yield from _without_blanks([held])


def text(line: bytes) -> str:
    """Decode a line as UTF-8; what is not UTF-8 becomes the replacement character, and NUL bytes vanish."""
    decoded = line.decode("utf-8", "replace")
    return decoded.replace("\0", "") if "\0" in decoded else decoded


def _without_blanks(pieces: list[bytes]) -> Iterator[bytes]:
    for piece in pieces:
        if piece and not piece.isspace():
            yield piece


def _zstd_stream(file: BinaryIO, path: Path) -> BinaryIO:
    builtin, package = _zstd_modules()
    if builtin is not None:
        return cast(BinaryIO, builtin.ZstdFile(file))
    if package is not None:
        return cast(BinaryIO, package.ZstdDecompressor().stream_reader(file, read_across_frames=True, closefd=False))
    raise ReadError(
        f"{str(path)!r} is compressed with Zstandard, which needs a package that is not installed. "
        "Install it with: pip install zstandard"
    )


@cache
def _zstd_modules() -> tuple[Any, Any]:
    """Return Python's own module (3.14 and later) and the package, None for what is missing."""
    return _imported("compression.zstd"), _imported("zstandard")


def _imported(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def _zstd_errors() -> tuple[type[Exception], ...]:
    return tuple(module.ZstdError for module in _zstd_modules() if module is not None)
