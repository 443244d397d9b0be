"""Blocks merged for a picture: all tokens and all counts, in fewer blocks."""

import numpy as np

from foreshock.batch import PAIRS
from foreshock.run import Block, merge_pair, merged_blocks
from foreshock.sketch import LogRatioSketch


def make_block(index):
    sketch = LogRatioSketch()
    sketch.update(np.random.default_rng(index).normal(size=50), np.zeros(50, int))
    sketches = {PAIRS[0]: sketch} | ({PAIRS[1]: sketch} if index % 3 == 0 else {})
    counters = {"rows": (1.0, float(index)), f"workers/{PAIRS[0]}": (0.0, 1.0)}
    return Block(index, 2 * index + 1, 2 * index + 2, sketches, 2, counters)


def test_merged_blocks_hold_every_token_and_every_count():
    blocks = [make_block(index) for index in range(11)]
    merged = merged_blocks(blocks, 4)
    assert len(merged) == 4
    assert [block.first_step for block in merged[1:]] == [block.last_step + 1 for block in merged[:-1]]
    assert (merged[0].first_step, merged[-1].last_step) == (1, 22)
    for pair in PAIRS[:2]:
        assert merge_pair(merged, pair) == merge_pair(blocks, pair)
    assert sum(block.total("rows") for block in merged) == sum(block.total("rows") for block in blocks)
    assert sum(block.workers - block.total(f"workers/{PAIRS[0]}") for block in merged) == 11
    assert blocks[0].sketches[PAIRS[0]].n("text_only") == 50  # the blocks themselves are as they were


def test_few_blocks_stay_apart_and_none_are_none():
    blocks = [make_block(index) for index in range(3)]
    assert [block.counters for block in merged_blocks(blocks, 5)] == [block.counters for block in blocks]
    assert merged_blocks([], 5) == []
