"""The largest tokens against a loop over all tokens."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from foreshock.batch import SLICES, TokenBatch
from foreshock.live.top_tokens import KEPT, TopTokens, unpack

NAMES = ("search", "calculator")


def make_batch(rows, length, seed):
    generator = torch.Generator().manual_seed(seed)
    kind = torch.randint(0, 4, (rows, length), generator=generator)
    padding = torch.arange(length) >= torch.randint(0, length + 1, (rows, 1), generator=generator)
    response = ((kind > 0) & ~padding).long()
    observation = ((kind == 0) & ~padding).long()
    ids = torch.randint(0, 1000, (rows, length), generator=generator)
    log_ratio = torch.randn(rows, length, generator=generator)
    log_ratio[torch.rand(rows, length, generator=generator) < 0.05] = torch.nan
    log_ratio[torch.rand(rows, length, generator=generator) < 0.02] = -torch.inf
    tools = torch.randint(-1, len(NAMES), (rows, 3), generator=generator)
    return TokenBatch(response, observation, token_ids=ids, tools=tools), log_ratio


def by_hand(batch, log_ratio, step):
    found = {name: [] for name in SLICES}
    for row in range(log_ratio.shape[0]):
        best = {}
        turn = position = 0
        inside = False
        for column in range(log_ratio.shape[1]):
            if batch.observation_mask[row, column]:
                turn += not inside
                inside, position = True, 0
                continue
            inside = False
            if not batch.response_mask[row, column]:
                continue
            name = SLICES[turn > 0]
            value = float(log_ratio[row, column])
            if value == value and abs(value) != float("inf") and abs(value) > abs(best.get(name, (0.0,))[0]):
                previous = int(batch.token_ids[row, column - 1]) if column else -1
                tool = int(batch.tools[row, turn]) if turn < 3 else -1
                best[name] = (
                    value, step, turn, position, int(batch.token_ids[row, column]), previous,
                    NAMES[tool] if tool >= 0 else "",
                )  # fmt: skip
            position += 1
        for name, token in best.items():
            found[name].append(token)
    return found


@settings(max_examples=40, deadline=None)
@given(rows=st.integers(0, 12), length=st.integers(1, 15), batches=st.integers(1, 3), seed=st.integers(0, 10**6))
def test_the_largest_token_of_every_row_competes(rows, length, batches, seed):
    top = TopTokens(torch.device("cpu"), rank=0, world_size=1)
    expected = {name: [] for name in SLICES}
    for number in range(batches):
        batch, log_ratio = make_batch(rows, length, seed + number)
        top.update(batch, log_ratio, batch.slice_ids(), batch.response_mask != 0, number)
        for name, tokens in by_hand(batch, log_ratio, 7 + number).items():
            expected[name] += tokens
    found = unpack(top.pack().numpy(), first_step=7, world_size=1, tools=NAMES)
    for name in SLICES:
        best = sorted(expected[name], key=lambda token: -abs(token[0]))[:KEPT]
        got = [
            (token.log_ratio, token.step, token.turn, token.position, token.token, token.previous, token.tool)
            for token in found[name]
        ]
        assert got == best


def test_slots_of_workers_add_up_and_texts_are_decoded():
    vectors = []
    for rank in range(3):
        top = TopTokens(torch.device("cpu"), rank=rank, world_size=3)
        batch, log_ratio = make_batch(10, 12, seed=rank)
        top.update(batch, log_ratio, batch.slice_ids(), batch.response_mask != 0, 0)
        vectors.append(top.pack().numpy())
    alone = [unpack(vector, 1, 3)["post_tool"] for vector in vectors]
    merged = unpack(sum(vectors), 1, 3, decode=lambda number: f"<{number}>")["post_tool"]
    assert [token.log_ratio for token in merged] == sorted(
        (token.log_ratio for tokens in alone for token in tokens), key=abs, reverse=True
    )[:KEPT]
    assert all(token.text == f"<{token.token}>" for token in merged)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_a_batch_without_a_usable_token_leaves_nothing(value):
    batch, log_ratio = make_batch(4, 6, seed=0)
    top = TopTokens(torch.device("cpu"), rank=0, world_size=1)
    top.update(batch, torch.full_like(log_ratio, value), batch.slice_ids(), batch.response_mask != 0, 0)
    assert unpack(top.pack().numpy(), 1, 1) == dict.fromkeys(SLICES, ())


def test_without_tools_no_tool_is_named():
    batch, log_ratio = make_batch(4, 6, seed=1)
    batch = TokenBatch(batch.response_mask, batch.observation_mask, token_ids=batch.token_ids)
    top = TopTokens(torch.device("cpu"), rank=0, world_size=1)
    top.update(batch, log_ratio, batch.slice_ids(), batch.response_mask != 0, 0)
    found = [token for tokens in unpack(top.pack().numpy(), 1, 1, tools=NAMES).values() for token in tokens]
    assert {token.tool for token in found} == {""}
