import numpy as np
import pytest
import torch

from foreshock.batch import TokenBatch
from foreshock.errors import LayoutError


def masks(rows, make):
    """Build masks from rows of letters: r = response, o = observation, . = padding."""
    response = make([[int(letter == "r") for letter in row] for row in rows])
    observation = make([[int(letter == "o") for letter in row] for row in rows])
    return response, observation


@pytest.mark.parametrize("make", [np.array, torch.tensor])
def test_slices_follow_the_masks(make):
    response, observation = masks(["rrorr.", "rrrrrr", "orr...", "......"], make)
    post_tool = TokenBatch(response, observation).slice_ids() * response
    assert post_tool.tolist() == [[0, 0, 0, 1, 1, 0], [0] * 6, [0, 1, 1, 0, 0, 0], [0] * 6]


@pytest.mark.parametrize("make", [np.array, torch.tensor])
def test_a_prompt_with_a_tool_result_makes_its_row_post_tool_from_the_first_token(make):
    response, observation = masks(["rrr", "rrr"], make)
    batch = TokenBatch(response, observation, prompt_has_observation=make([True, False]))
    assert (batch.slice_ids() * response).tolist() == [[1, 1, 1], [0, 0, 0]]


@pytest.mark.parametrize("kind", ["int8", "uint8", "int16", "float16", "bfloat16"])
def test_long_tool_results_do_not_wrap_around(kind):
    """A sum of 256 ones is 0 in one byte, and tokens after it would seem to stand before any tool result."""
    observation = torch.zeros(1, 600, dtype=getattr(torch, kind))
    observation[:, 10:266] = 1
    masks = [observation] if kind == "bfloat16" else [observation, observation.numpy()]
    for mask in masks:
        ids = TokenBatch(response_mask=1 - mask, observation_mask=mask).slice_ids()
        assert not ids[0, :10].any()
        assert ids[0, 10:].all()


def test_pairs_name_numerator_and_denominator():
    response, observation = masks(["rr"], np.array)
    logs = {name: np.full((1, 2), value) for name, value in {"policy": -1.0, "old": -2.0, "rollout": -3.0}.items()}
    pairs = TokenBatch(response, observation, logs).pairs()
    assert list(pairs) == ["policy/old", "old/rollout"]
    numerator, denominator = pairs["old/rollout"]
    assert (numerator - denominator).tolist() == [[1.0, 1.0]]


def test_policy_over_rollout_stands_in_when_there_is_no_old():
    response, observation = masks(["rr"], np.array)
    logs = {"policy": np.zeros((1, 2)), "rollout": np.zeros((1, 2))}
    assert list(TokenBatch(response, observation, logs).pairs()) == ["policy/rollout"]


def test_tensors_that_are_not_aligned_are_named():
    response, observation = masks(["rrr"], np.array)
    with pytest.raises(LayoutError, match=r"policy has shape \(1, 2\), but response_mask has shape \(1, 3\)"):
        TokenBatch(response, observation, {"policy": np.zeros((1, 2))})
    with pytest.raises(LayoutError, match=r"tools has 2 rows, but response_mask has 1"):
        TokenBatch(response, observation, tools=np.zeros((2, 3), int))
