from __future__ import annotations

import pytest

from foreshock.sources.keys import ALIASES, STEP_KEYS, canonical_names, is_evaluation


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("completion_length", "completions/mean_length"),
        ("actor/entropy_loss", "entropy"),
        ("actor/entropy", "entropy"),
        ("policy/entropy", "entropy"),
        ("critic/score/mean", "reward"),
        ("critic/rewards/mean", "reward"),
        ("reward/mean", "reward"),
        ("actor/kl_loss", "kl"),
        ("kl_mean", "kl"),
        ("actor/grad_norm", "grad_norm"),
        ("optim/lr", "learning_rate"),
        ("train/loss", "loss"),
        ("Loss", "loss"),
        ("train/rewards/f/mean", "rewards/f/mean"),
        ("eval/loss", "eval_loss"),
        ("eval_loss", "eval_loss"),
        ("actor/ppo_kl", "actor/ppo_kl"),  # policy/old, not policy/ref
        ("something/else", "something/else"),
        ("a-run - train/loss", "loss"),
    ],
)
def test_one_name_for_one_thing(key: str, name: str) -> None:
    assert canonical_names({key: {0}}) == {key: name}


def test_the_better_key_of_a_row_takes_the_name() -> None:
    names = canonical_names({"critic/rewards/mean": {0}, "critic/score/mean": {0}, "reward": {1}})
    assert names == {"critic/rewards/mean": "critic/rewards/mean", "critic/score/mean": "reward", "reward": "reward"}


def test_a_table_of_several_runs_keeps_them_apart() -> None:
    keys = {"a - train/loss": {0}, "b - train/loss": {0}}
    assert canonical_names(keys) == {key: key for key in keys}


def test_no_name_has_two_meanings() -> None:
    others = [name for names in ALIASES.values() for name in names]
    assert len(others) == len(set(others))
    assert not set(others) & set(ALIASES)
    assert not set(STEP_KEYS) & {*others, *ALIASES}
    assert all(name == name.lower() for name in (*others, *ALIASES, *STEP_KEYS))


def test_rows_of_an_evaluation() -> None:
    assert is_evaluation(("eval_loss", "eval_runtime", "epoch", "step"))
    assert not is_evaluation(("eval_loss", "loss"))
    assert not is_evaluation(("epoch", "step"))
