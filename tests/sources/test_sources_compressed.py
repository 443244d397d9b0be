from __future__ import annotations

import gzip
import importlib.util
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from foreshock.errors import ReadError
from foreshock.sources import compressed, open_run

Written = Callable[..., Path]

LOG = "".join(f'{{"step": {step}, "loss": {step / 7}}}\n' for step in range(500)).encode()


def test_gzip_is_read_like_plain_text(written: Written) -> None:
    plain, packed = open_run(written(LOG, "plain")), open_run(written(gzip.compress(LOG), "packed"))
    assert packed.series["loss"].values.tolist() == plain.series["loss"].values.tolist()
    assert len(packed.series["loss"]) == 500


def test_two_joined_gzip_files(written: Written) -> None:
    run = open_run(written(gzip.compress(LOG[:4000]) + gzip.compress(LOG[4000:])))
    assert len(run.series["loss"]) == 500


def test_a_torn_gzip_gives_what_it_holds(written: Written) -> None:
    packed = gzip.compress(LOG)
    run = open_run(written(packed[: len(packed) // 2]))
    steps = run.series["loss"].steps.tolist()
    assert steps == list(range(len(steps)))
    assert 100 < len(steps) < 450
    assert run.skipped[compressed.TORN_END] == 1


def test_a_gzip_that_is_damaged_from_the_start(written: Written) -> None:
    with pytest.raises(ReadError, match="is compressed, but damaged from the start"):
        open_run(written(b"\x1f\x8b\x08 nothing of the kind"))


@pytest.mark.skipif(
    sys.version_info >= (3, 14) or importlib.util.find_spec("zstandard") is not None, reason="Zstandard can be read"
)
def test_zstandard_without_the_package_names_the_pip_line(written: Written) -> None:
    with pytest.raises(ReadError, match="pip install zstandard"):
        open_run(written(b"\x28\xb5\x2f\xfd rest"))


def test_zstandard(written: Written) -> None:
    zstandard = pytest.importorskip("zstandard")
    packed = zstandard.ZstdCompressor().compress(LOG)
    assert len(open_run(written(packed)).series["loss"]) == 500
    long = b"".join(b'{"step": %d, "loss": 0.5}\n' % step for step in range(40_000))
    damaged = bytearray(zstandard.ZstdCompressor(write_checksum=True).compress(long))
    damaged[-1] ^= 1
    torn = open_run(written(bytes(damaged), "torn"))
    assert torn.skipped[compressed.TORN_END] == 1
    assert len(torn.series["loss"]) > 1_000


@pytest.mark.parametrize("size", [3, 7, 64])
def test_lines_do_not_depend_on_the_chunks(written: Written, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(compressed, "_CHUNK", size)
    path = written(b"\xef\xbb\xbfone\r\ntwo\rthree\n\n  \n" + "vier ü".encode() + b"\n" + b"x" * 50)
    found = list(compressed.lines(path, Counter()))
    assert found[0].removeprefix(b"\xef\xbb\xbf") == b"one"
    assert found[1:] == [b"two", b"three", "vier ü".encode(), b"x" * 50]


def test_a_line_that_is_too_long_is_skipped_and_counted(written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compressed, "LONGEST_LINE", 2**20)
    monkeypatch.setattr(compressed, "_CHUNK", 2**16)
    long = b'{"step": 2, "text": "' + b"x" * 2**21 + b'"}\n'
    run = open_run(written(b'{"step": 1, "a": 1}\n' * 1 + long + b'{"step": 3, "a": 3}\n' + long[:-1]))
    assert run.series["a"].steps.tolist() == [1, 3]
    assert run.skipped == {"lines over 1 MB": 2}
