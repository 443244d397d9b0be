"""Blocks that stay on disk: the same content as in memory, in constant memory however large they are."""

import resource
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from foreshock.batch import PAIRS, SLICES
from foreshock.diagnosis import diagnose_run
from foreshock.errors import CorruptRecord, ReadError
from foreshock.live.counters import NAMES
from foreshock.run import (
    Block,
    EncodedSketches,
    Run,
    RunWriter,
    StoredBlocks,
    TopToken,
    prepare_directory,
    read_run_directory,
)
from foreshock.sketch import LogRatioSketch


def make_block(index=0, tokens=1_300):
    """Ten steps with every counter of the monitor and a full list of largest tokens."""
    g = np.random.default_rng(index)
    sketch = LogRatioSketch()
    sketch.update(0.1 * g.standard_t(3, (2, tokens)), np.array([[0], [1]]).repeat(tokens, 1))
    counters = dict.fromkeys(NAMES, (0.0,) * 10)
    counters |= {name: tuple(map(float, g.integers(1_000, 9_000, 10))) for name in NAMES[:5]}
    top = {
        name: tuple(TopToken(*g.normal(size=1).tolist(), *g.integers(1_000, 9_000, 5).tolist()) for _ in range(16))
        for name in SLICES
    }
    return Block(index, 10 * index + 1, 10 * index + 10, EncodedSketches.of({PAIRS[0]: sketch}), 1, counters, top)


@pytest.fixture
def writer(tmp_path):
    writer = RunWriter(prepare_directory(tmp_path / "run"), start_step=0, identity={}, notices={})
    yield writer
    writer.close()


def test_a_written_block_reads_as_the_one_in_memory(writer):
    blocks = [make_block(index) for index in range(3)]
    kept = [writer.write_block(block) for block in blocks]
    for block, stored, read in zip(blocks, kept, read_run_directory(writer.folder).blocks, strict=True):
        for other in (stored, read):
            assert other.to_record() == block.to_record()
            assert dict(other.sketches) == dict(block.sketches)
            assert dict(other.counters) == dict(block.counters)
            assert dict(other.top) == dict(block.top)
            assert (other.total("rows"), other.total("errors"), other.total("unknown")) == (block.total("rows"), 0, 0)
            assert other.sketches.get("policy/old") is None
            assert "policy/old" not in other.sketches


def test_a_folder_given_by_a_relative_path_may_be_left(writer, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    relative = RunWriter(prepare_directory("other"), start_step=0, identity={}, notices={})
    kept = relative.write_block(make_block())
    relative.close()
    run = read_run_directory("other")
    monkeypatch.chdir("/")
    assert kept.sketches[PAIRS[0]] == run.blocks[0].sketches[PAIRS[0]]


def test_a_file_that_is_gone_or_rewritten_is_named(writer):
    kept = writer.write_block(make_block())
    path = writer.folder / "blocks.jsonl"
    path.write_bytes(b"x" * 100_000)
    with pytest.raises(CorruptRecord, match="holds no block at byte 0 any more"):
        kept.sketches[PAIRS[0]]
    path.unlink()
    with pytest.raises(ReadError, match="cannot be read any more"):
        kept.counters["rows"]
    assert kept.total("errors") == 0  # what is zero is known without the file


def append(writer, run, last, block):
    """Write blocks to a run until it has `last`, as the monitor does."""
    for index in range(len(run.blocks), last):
        block = replace(block, index=index, first_step=10 * index + 1, last_step=10 * index + 10, derived={})
        run.blocks.append(writer.write_block(block))


def test_a_judged_block_takes_about_a_hundred_bytes_of_memory(writer):
    run, block = Run(blocks=StoredBlocks()), make_block()
    assert len(str(block.to_record())) > 4_000
    tracemalloc.start()
    try:
        append(writer, run, 300, block)
        diagnose_run(run)
        before = tracemalloc.get_traced_memory()[0]
        append(writer, run, 1_300, block)
        diagnose_run(run)
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown / 1_000 < 250  # bytes, of which Python keeps 80 in reserve for tuples; the line on disk has 4,000


@pytest.mark.slow
def test_a_hundred_thousand_blocks_take_less_than_ten_mb(writer):
    run, block = Run(blocks=StoredBlocks()), make_block(tokens=200)
    append(writer, run, 10_000, block)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    append(writer, run, 100_000, block)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024  # Linux counts in KiB
    assert len(run.blocks) == 100_000
    assert run.blocks[77_777].sketches[PAIRS[0]] == block.sketches[PAIRS[0]]
    assert grown < 10e6, grown / 1e6


def test_stored_blocks_are_a_sequence_that_reads_what_was_put_in(writer):
    kept = [writer.write_block(make_block(index)) for index in range(4)]
    blocks = StoredBlocks()
    assert not blocks
    assert blocks.pairs == []
    for block in (kept[0], kept[3]):
        blocks.append(block)
    blocks.insert(1, kept[2])
    blocks.insert(1, kept[1])
    assert list(blocks) == kept
    assert blocks[-1] == kept[-1]
    assert blocks[1:3] == kept[1:3]
    assert blocks[1] != kept[2]
    assert [block.to_record() for block in blocks] == [make_block(index).to_record() for index in range(4)]
    assert blocks.pairs == [PAIRS[0]]
    with pytest.raises(IndexError):
        blocks[4]


def test_a_block_whose_numbers_are_too_large_is_refused_and_nothing_is_added(writer):
    blocks = StoredBlocks()
    with pytest.raises(CorruptRecord, match="its numbers are"):
        blocks.append(writer.write_block(replace(make_block(), index=2**70)))
    assert len(blocks) == 0


def test_a_block_that_could_not_be_written_is_kept_among_the_others(writer):
    blocks, unwritten = StoredBlocks(), replace(make_block(1), sketches={PAIRS[1]: LogRatioSketch()})
    for block in (writer.write_block(make_block(0)), unwritten, writer.write_block(make_block(2))):
        blocks.append(block)
    assert blocks[1] is unwritten
    assert blocks.pairs == [PAIRS[0], PAIRS[1]]
    assert blocks[2].to_record() == make_block(2).to_record()
