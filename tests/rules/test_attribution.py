import numpy as np
import pytest

from foreshock.rules.attribution import attribute
from foreshock.run import Block, TopToken
from foreshock.sketch import LogRatioSketch

PAIR = "policy/ref"


def token(log_ratio, text, *, previous="</tool>", turn=1, position=0, tool=""):
    return TopToken(
        log_ratio, step=1, turn=turn, position=position, token=7, previous=3, text=text, previous_text=previous,
        tool=tool,
    )  # fmt: skip


def attributed(*kept, above=1.0, others=()):
    """Attribute a block whose post-tool slice holds the kept tokens and some others."""
    values = np.array([each.log_ratio for each in kept] + list(others), np.float32)
    sketch = LogRatioSketch()
    sketch.update(values, np.ones(values.shape, int))
    return attribute([Block(0, 1, 10, {PAIR: sketch}, top={"post_tool": tuple(kept)})], PAIR, "post_tool", above)


def test_only_what_exceeds_the_level_counts():
    found = attributed(token(-3.0, "a"), token(1.5, "b"), token(0.9, "c"))
    assert [(each.text, excess) for each, excess in zip(found.tokens, found.excess, strict=True)] == [
        ("a", 2.0),
        ("b", 0.5),
    ]
    assert found.coverage == pytest.approx(1)


def test_the_share_of_all_excess_that_the_kept_tokens_hold():
    found = attributed(token(4.0, "a"), others=[-2.0, 0.5, 2.0, 2.0])
    assert found.coverage == pytest.approx(3 / (3 + 1 + 1 + 1), rel=1e-6)
    assert found.sentence().startswith("The largest token holds 50% of the excess of the tail; of their part ")
    assert found.rows()[0]["share of excess"] == found.coverage


def test_a_slice_without_tokens_or_excess_has_no_coverage():
    assert attributed().coverage == 0
    assert attributed(others=[0.5]).coverage == 0


def test_a_ratio_beyond_the_buckets_counts_as_their_end():
    assert attributed(token(500.0, "a")).excess == (127.0,)
    assert attributed(token(500.0, "a")).coverage == pytest.approx(1)


def test_token_place_and_tool_that_make_the_tail_are_named():
    found = attributed(
        token(3.0, "call", position=0, tool="search"),
        token(1.5, "so", previous="\n", position=4, tool="search"),
        token(1.5, "but", previous="\n", position=5, tool="calculator"),
    )
    assert found.sentence() == (
        "The 3 largest tokens hold 100% of the excess of the tail; of their part 83% from answers to the tool search, "
        "67% from token 'call', 67% from the token after '</tool>' and 67% from place 1 of the answer to tool result 1."
    )
    first, *_ = found.rows()
    assert first == {
        "token": "'call'", "after": "'</tool>'", "tool": "search", "times": 1, "share of excess": 2 / 3,
        "largest log-ratio": 3.0,
    }  # fmt: skip


def test_nothing_is_said_when_nothing_stands_out():
    found = attributed(*(token(2.0, str(n), previous=str(n), position=n) for n in range(8)))
    assert found.sentence() == ""
    assert attributed().sentence() == ""
    assert attributed().rows() == []
    assert len(found.rows()) == 5
    assert "tool" not in found.rows()[0]


def test_a_token_without_text_is_named_by_its_id():
    unnamed = TopToken(2.0, step=1, turn=0, position=0, token=42, previous=-1)
    found = attributed(unnamed)
    assert found.rows()[0]["token"] == "id 42"
    assert found.rows()[0]["after"] == "(start)"
    assert "after" not in found.sentence()
