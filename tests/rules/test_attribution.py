from foreshock.rules.attribution import attribution_rows, attribution_sentence, largest_tokens
from foreshock.run import Block, TopToken


def token(log_ratio, text, *, previous="</tool>", turn=1, position=0):
    return TopToken(
        log_ratio, step=1, turn=turn, position=position, token=7, previous=3, text=text, previous_text=previous
    )


def test_only_what_exceeds_the_baseline_counts():
    block = Block(0, 1, 10, {}, top={"post_tool": (token(-3.0, "a"), token(1.5, "b"), token(0.9, "c"))})
    found = largest_tokens([block], "post_tool", above=1.0)
    assert [(each.text, excess) for each, excess in found] == [("a", 2.0), ("b", 0.5)]
    assert largest_tokens([block], "text_only", above=0.0) == []


def test_the_token_and_the_place_that_make_the_tail_are_named():
    found = [
        (token(3.0, "call", position=0), 2.0),
        (token(2.0, "so", position=4), 0.5),
        (token(2.0, "but", position=5), 0.5),
    ]
    assert attribution_sentence(found) == (
        "Of the excess of the 3 largest tokens, 67% from token 'call' and "
        "67% from place 1 of the answer to tool result 1."
    )
    first, *_ = attribution_rows(found)
    assert first == {
        "token": "'call'", "after": "'</tool>'", "times": 1, "share of excess": 2 / 3, "largest log-ratio": 3.0,
    }  # fmt: skip


def test_nothing_is_said_when_nothing_stands_out():
    found = [(token(2.0, str(number), position=number), 1.0) for number in range(8)]
    assert attribution_sentence(found) == ""
    assert attribution_sentence([]) == ""
    assert len(attribution_rows(found)) == 5


def test_a_token_without_text_is_named_by_its_id():
    unnamed = TopToken(2.0, step=1, turn=0, position=0, token=42, previous=-1)
    assert attribution_rows([(unnamed, 1.0)])[0]["token"] == "id 42"
    assert attribution_rows([(unnamed, 1.0)])[0]["after"] == "(start)"
