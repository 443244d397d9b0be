from __future__ import annotations

import base64
import tracemalloc
import zlib
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foreshock.errors import CorruptRecord, ForeshockError, InputError
from foreshock.sketch import LogRatioSketch
from foreshock.sketch.buckets import LOWER, SHIFT
from foreshock.sketch.codec import ROUNDING, decode, encode


def block(slices: int = 3, tokens: int = 13_000, seed: int = 0) -> LogRatioSketch:
    """One pair's block of ten steps, with as many tokens in each slice."""
    g = np.random.default_rng(seed)
    sketch = LogRatioSketch(tuple(f"slice_{i}" for i in range(slices)))
    for _ in range(10):
        shape = (slices, tokens // 10)
        scale = np.exp(g.normal(0, 0.5, shape)) * 0.05
        values = np.where(g.random(shape) < 0.35, 0, scale * g.standard_t(3, shape))
        sketch.update(values, np.arange(slices)[:, None].repeat(shape[1], 1))
    return sketch


RECORD = encode(block())


def test_round_trip() -> None:
    sketch = block()
    sketch.update(np.array([np.nan, np.inf, -np.inf, 300, 1e-30]), np.array([0, 1, 2, 0, 1]), np.array([1, 1, 1, 1, 0]))
    sketch.outside = 7
    copy = decode(encode(sketch))
    for name in ("slices", "counts", "tallies", "sequences", "extremes", "masked", "outside"):
        assert np.array_equal(getattr(copy, name), getattr(sketch, name)), name
    assert decode(encode(copy)) == copy
    copy.merge(sketch)  # its arrays are its own, and writable
    assert copy.n("slice_0") == 2 * sketch.n("slice_0")


def test_fractions_are_rounded_as_promised() -> None:
    sketch = block(tokens=130_000)
    sketch.update(np.linspace(-30, 30, 999), np.zeros(999, int))
    moved = np.abs(decode(encode(sketch)).fractions - sketch.fractions)
    assert (moved <= np.sqrt(sketch.counts) * 2.0**SHIFT / ROUNDING).all()  # a whole step, at the end of a bucket
    inner = (sketch.fractions > sketch.counts * 2.0 ** (SHIFT - 3)) & (
        sketch.fractions < sketch.counts * 7 * 2.0 ** (SHIFT - 3)
    )
    assert (moved <= np.sqrt(sketch.counts) * 2.0**SHIFT / ROUNDING / 2 + 1)[inner].all()
    assert moved.any()
    assert not moved[:, :, LOWER >= 1].any()


@pytest.mark.parametrize("name", ["kl_k3", "second_moment", "chi2"])
def test_the_record_reads_as_the_sketch_did(name: str, draw: Callable[[int], np.ndarray]) -> None:
    sketch = LogRatioSketch(("all",))
    values = draw(30_000)
    sketch.update(values, np.zeros(values.shape, int))
    read = getattr(decode(encode(sketch)), name)("all").value
    assert read == pytest.approx(getattr(sketch, name)("all").value, rel=1e-4)


@pytest.mark.parametrize("slices", [("a",), ("ä, b", "日本", ""), tuple(map(str, range(64)))])
def test_round_trip_of_other_layouts(slices: tuple[str, ...]) -> None:
    sketch = LogRatioSketch(slices)
    assert decode(encode(sketch)) == sketch


def test_three_slices_and_two_pairs_take_at_most_12_kb() -> None:
    assert sum(len(encode(block(seed=pair))) for pair in range(2)) <= 12_000


def test_the_record_is_one_line_of_ascii() -> None:
    assert RECORD.isascii()
    assert not set(RECORD) & set(' \n"\\')


@pytest.mark.parametrize("cut", [0, 1, 4, 100, 1_000, len(RECORD) - 4, len(RECORD) - 1])
def test_a_torn_record_is_corrupt(cut: int) -> None:
    with pytest.raises(CorruptRecord, match=r"sketch record: got .* Expected the text that encode\(\) wrote"):
        decode(RECORD[:cut])


@settings(max_examples=200, deadline=None)
@given(st.integers(0, len(base64.b64decode(RECORD)) - 1), st.integers(1, 255))
def test_an_altered_byte_is_corrupt(place: int, change: int) -> None:
    data = bytearray(base64.b64decode(RECORD))
    data[place] ^= change
    try:
        copy = decode(base64.b64encode(bytes(data)).decode())
    except CorruptRecord:
        return
    assert copy == decode(RECORD)  # zlib has a few header bits that mean nothing


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=200) | st.binary(max_size=200).map(lambda b: base64.b64encode(b).decode()))
def test_random_text_is_corrupt(text: str) -> None:
    with pytest.raises(CorruptRecord):
        decode(text)


CONTENT = zlib.decompress(base64.b64decode(RECORD))[:-4]


def sealed(content: bytes) -> str:
    """The record of any content, with the right checksums."""
    return base64.b64encode(zlib.compress(content + zlib.crc32(content).to_bytes(4, "little"), 1)).decode()


def test_a_change_that_zlib_does_not_see_is_corrupt() -> None:
    data = zlib.decompress(base64.b64decode(RECORD))
    place = next(i for i in range(2_000, len(data)) if data[i + 1] >= 4 and max(data[i : i + 3]) < 254)
    changed = bytearray(data)
    for i, change in enumerate((2, -4, 2)):
        changed[place + i] += change
    assert zlib.adler32(changed) == zlib.adler32(data)
    with pytest.raises(CorruptRecord, match="checksum"):
        decode(base64.b64encode(zlib.compress(changed)).decode())


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(CONTENT) - 1) | st.integers(0, 60), st.binary(max_size=9)), max_size=4))
def test_wrong_content_behind_a_right_checksum_never_raises_anything_else(edits: list[tuple[int, bytes]]) -> None:
    data = bytearray(CONTENT)
    for place, piece in edits:
        data[place : place + len(piece)] = piece
    try:
        sketch = decode(sealed(bytes(data)))
    except CorruptRecord:
        return
    assert decode(encode(sketch)) == sketch


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300))
def test_random_content_is_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptRecord):
        decode(sealed(data))
    with pytest.raises(CorruptRecord):
        decode(base64.b64encode(zlib.compress(data)).decode())


@pytest.mark.parametrize("tail", [b"x", b"\0" * 8])
def test_something_after_the_content_or_the_stream_is_corrupt(tail: bytes) -> None:
    for text in (sealed(CONTENT + tail), base64.b64encode(base64.b64decode(RECORD) + tail).decode()):
        with pytest.raises(CorruptRecord):
            decode(text)


def test_a_record_of_another_version_is_named() -> None:
    data = bytearray(CONTENT)
    data[3] = 99
    with pytest.raises(CorruptRecord, match="version 99"):
        decode(sealed(bytes(data)))


def test_a_bomb_is_not_unpacked() -> None:
    bomb = base64.b64encode(zlib.compress(bytes(200_000_000), 9)).decode()
    tracemalloc.start()
    with pytest.raises(CorruptRecord):
        decode(bomb)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20_000_000


def test_negative_counts_are_corrupt() -> None:
    sketch = block()
    sketch.counts[0, 0, 0] = -1
    with pytest.raises(CorruptRecord, match="negative counts"):
        decode(encode(sketch))


def test_names_that_cannot_be_written_are_refused() -> None:
    with pytest.raises(InputError, match="bytes of names"):
        encode(LogRatioSketch(("x" * 70_000,)))
    with pytest.raises(ForeshockError):
        encode(LogRatioSketch(("a\0b",)))
