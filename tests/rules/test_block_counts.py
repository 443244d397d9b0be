"""Counts over blocks: the same whether the blocks came one by one or all at once."""

from foreshock.rules.block_counts import block_counts
from foreshock.run import Block, Run


def make_blocks(amounts):
    return [
        Block(index, 10 * index + 1, 10 * index + 10, {}, counters=dict.fromkeys(("errors", "rows"), (0.0, amount)))
        for index, amount in enumerate(amounts)
    ]


def test_counts_grow_with_the_blocks_and_start_over_where_these_were_replaced():
    run = Run()
    for block in make_blocks([0, 2, 3]):
        run.blocks.append(block)
        counts = block_counts(run)
    assert counts.total["errors"] == 5
    assert counts.first == {"errors": 12}
    assert "rows" not in counts.total
    assert block_counts(run) is counts
    run.blocks = make_blocks([4, 0, 0])
    assert block_counts(run).total["errors"] == 4
    run.blocks = []
    assert block_counts(run).first == {}


def test_the_first_value_that_is_not_finite_is_dated_to_its_step():
    counters = [{"nonfinite/ref": (0.0, 0.0, 0.0)}, {"nonfinite/ref": (0.0, 7.0, 1.0), "nonfinite/old": (1.0,)}]
    run = Run(blocks=[Block(i, 3 * i + 1, 3 * i + 3, {}, counters=each) for i, each in enumerate(counters)])
    counts = block_counts(run)
    assert counts.first == {"nonfinite/ref": 5, "nonfinite/old": 4}
    assert counts.total["nonfinite/ref"] == 8
