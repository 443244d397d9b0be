from __future__ import annotations

import itertools
import random

import pytest

pytest.importorskip("trl")

from hypothesis import given
from hypothesis import strategies as st

from foreshock.lab.environment import (
    MAX_HOPS,
    THOUGHT_COUNT,
    Curriculum,
    Habits,
    World,
    correct_answer,
    dialogue,
    questions,
    schema_result,
)
from foreshock.lab.vocabulary import ENTITIES, THOUGHTS, VALUES

ALL_REDIRECT = Curriculum(1.0, 1.0, 0, 1)
NONE_REDIRECT = Curriculum(0.0, 0.0, 0, 1)


def follow_by_hand(world: World, entity: str) -> tuple[str, int]:
    """Ask the tool as a policy would, going on to the entity that each redirect names."""
    for hops in itertools.count():
        words = world.lookup(entity).split()
        values = [word for word in words if word in VALUES]
        if values:
            return values[0], hops
        entity = next(word for word in words if word in ENTITIES and word != entity)
    raise AssertionError


@given(seed=st.integers(0, 50), step=st.integers(0, 300), share=st.floats(0, 1))
def test_following_every_redirect_leads_to_the_truth_within_the_cap(seed, step, share):
    world = World(Curriculum(share, share, 0, 1), seed=seed)
    world.step = step
    for entity in ENTITIES[:6]:
        value, hops = follow_by_hand(world, entity)
        assert value == world.truth(entity)
        assert hops == world.hops(entity) <= MAX_HOPS


def test_a_constrained_tool_answers_the_same_truth_at_once_and_in_one_form():
    free = World(ALL_REDIRECT, seed=1)
    tight = World(ALL_REDIRECT, seed=1, redirects=False, free_forms=False)
    assert any(free.hops(entity) for entity in ENTITIES)
    for entity in ENTITIES:
        assert tight.lookup(entity) == schema_result(free.truth(entity))


def test_form_and_redirects_are_separate():
    forms = World(ALL_REDIRECT, seed=1, redirects=False)
    schema = World(ALL_REDIRECT, seed=1, free_forms=False)
    for entity in ENTITIES:
        answer = forms.lookup(entity)
        assert forms.truth(entity) in answer.split()
        assert (answer == schema_result(forms.truth(entity))) == (
            not forms.hops(entity) and answer.startswith("value =")
        )
        redirected = schema.hops(entity) > 0
        assert schema.lookup(entity).startswith(f"{entity} moved to" if redirected else "value =")
    assert sum("moved" in schema.lookup(entity) for entity in ENTITIES) > 4


def test_unknown_keys_and_padded_keys():
    world = World(NONE_REDIRECT, seed=0)
    assert world.lookup("nonsense") == "none"
    assert world.lookup(" e3 ") == world.lookup("e3")


def test_the_share_of_redirects_follows_the_curriculum():
    curriculum = Curriculum(0.1, 0.7, 20, 120)
    assert [curriculum.share(step) for step in (0, 20, 70, 120, 500)] == pytest.approx([0.1, 0.1, 0.4, 0.7, 0.7])
    world = World(curriculum, seed=0)
    shares = []
    for step in (0, 70):
        world.step = step
        shares.append(sum(world.hops(entity) > 0 for entity in ENTITIES) / len(ENTITIES))
    assert shares[0] == pytest.approx(0.1, abs=0.1)
    assert shares[1] == pytest.approx(0.4, abs=0.1)


def test_a_step_has_its_own_world_and_the_same_one_each_time():
    world, again = World(NONE_REDIRECT, seed=0), World(NONE_REDIRECT, seed=0)
    first = [world.truth(entity) for entity in ENTITIES]
    world.step = 1
    assert [world.truth(entity) for entity in ENTITIES] != first
    assert [again.truth(entity) for entity in ENTITIES] == first


def test_answers_are_right_only_word_for_word_and_from_the_assistant():
    world = World(NONE_REDIRECT, seed=0)
    value = world.truth("e3")
    other = next(v for v in VALUES if v != value)

    def grade(content, role="assistant", kind="lookup", subject="e3"):
        return correct_answer(world, kind, subject, {"role": role, "content": content})

    assert grade(f"so answer {value}") == 1.0
    assert grade(f"answer {other}") == grade(value) == grade("") == grade(f"answer {value}", role="tool") == 0.0
    assert grade("then answer v3", kind="think", subject="v3") == 1.0


def test_every_step_has_the_same_mix_of_questions():
    rows = questions(steps=5, lookups_per_step=4, thoughts_per_step=3, seed=0)
    for step in range(5):
        kinds = [row["kind"] for row in rows[7 * step : 7 * step + 7]]
        assert sorted(kinds) == ["lookup"] * 4 + ["think"] * 3
    assert rows != questions(steps=5, lookups_per_step=4, thoughts_per_step=3, seed=1)


def test_dialogues_keep_the_habits():
    habits = Habits(redirect_share=0.5, follow=(0.25, 0.5, 0.5))
    rng = random.Random(0)
    dialogues = [dialogue(habits, rng) for _ in range(4000)]
    thoughts = [d for d in dialogues if d[0]["content"].startswith("think")]
    assert len(thoughts) / len(dialogues) == pytest.approx(1 - habits.lookup_share, abs=0.03)
    counts = [sum(word in THOUGHTS for word in d[1]["content"].split()) for d in thoughts]
    assert (min(counts), max(counts)) == THOUGHT_COUNT
    results = [d for d in dialogues if len(d) > 2]
    redirected = [d for d in results if not any(v in d[2]["content"].split() for v in VALUES)]
    followed = [d for d in redirected if d[3].get("tool_calls")]
    assert len(redirected) / len(results) == pytest.approx(0.5, abs=0.04)
    assert len(followed) / len(redirected) == pytest.approx((0.25 + 0.5 + 0.5) / 3, abs=0.04)
