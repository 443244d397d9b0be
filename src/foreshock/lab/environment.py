"""The lookup task: questions that need a tool, questions that need none, and results that redirect to another key.

A question is "what has e5 ?" (look it up; the result may send the policy on to another key, up to `MAX_HOPS` times) or
"think about v3 ?" (text only: some words of thought, then the answer). The share of keys that redirect rises during
training on a schedule of its own. That curriculum is exogenous: nothing in the policy drives it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from foreshock.lab.vocabulary import ENTITIES, THOUGHTS, VALUES

MAX_HOPS = 3
REDIRECT_SHARE = "curriculum/redirect_share"
"""Key under which a run logs the curriculum."""

THOUGHT_COUNT = (7, 11)
THOUGHTS_AFTER_RESULT = 3
"""Always as many: a number that is free would drift by itself, since no grade depends on it."""
# Common words of thought are common, rare ones rare: 1, 1/2, 1/3, …
THOUGHT_WEIGHTS = tuple(1.0 / (rank + 1) for rank in range(len(THOUGHTS)))
FREE_FORM_SHARE = 0.15
FREE_FORMS = ("{entity} holds {value}", "found {value} for {entity}", "value for {entity} is {value}")
# The first wording is the plain one, the others are odd.
REDIRECTS = ("{entity} moved to {target}", "not {entity} ask {target}", "not known for {entity} see {target}")

Message = dict[str, Any]


def schema_result(value: str) -> str:
    """Return the tool result in its fixed form."""
    return f"value = {value}"


def free_form_result(entity: str, value: str, form: int) -> str:
    """Return the tool result as one of the `FREE_FORMS`."""
    return FREE_FORMS[form].format(entity=entity, value=value)


def redirect_result(entity: str, target: str, form: int) -> str:
    """Return a result that holds no value and names the key to ask for next, in one of the `REDIRECTS`."""
    return REDIRECTS[form].format(entity=entity, target=target)


@dataclass(frozen=True)
class Entry:
    """What the tool knows about one entity during one step.

    `form`: which of the `REDIRECTS` or `FREE_FORMS` the answer takes, None for the fixed form.
    """

    value: str
    target: str | None
    form: int | None


@dataclass(frozen=True)
class Curriculum:
    """The share of keys that redirect at a step, which is also the share of redirects that come in an odd wording.

    It is `start` until step `ramp_from`, `end` from step `ramp_to` on, and linear between them.
    """

    start: float
    end: float
    ramp_from: int
    ramp_to: int

    def share(self, step: int) -> float:
        """Return the share at `step`."""
        progress = (step - self.ramp_from) / max(1, self.ramp_to - self.ramp_from)
        return self.start + (self.end - self.start) * min(1.0, max(0.0, progress))


class World:
    """The tool and its answers. Every step has new values and redirects, all a pure function of (seed, step).

    `redirects`: whether the tool sends the policy on to another key; otherwise it goes there itself and answers in a
    free form in the same place. `free_forms`: whether answers come in several wordings; otherwise each kind has one.
    """

    def __init__(self, curriculum: Curriculum, *, seed: int, redirects: bool = True, free_forms: bool = True) -> None:
        self.curriculum = curriculum
        self.seed = seed
        self.redirects = redirects
        self.free_forms = free_forms
        self.step = 0
        self._entries = lru_cache(maxsize=2)(self._build)

    def lookup(self, key: str) -> str:
        """Look up the value that an entity has.

        Args:
            key: The name of the entity.

        Returns:
            The value, or the name of the entity to ask for instead.
        """
        entity = key.strip()
        entry = self._entries(self.step).get(entity)
        if entry is None:
            return "none"
        form = entry.form if self.free_forms else None
        if entry.target is not None and self.redirects:
            return redirect_result(entity, entry.target, form or 0)
        value = self.truth(entity)
        return schema_result(value) if form is None else free_form_result(entity, value, form)

    def truth(self, entity: str) -> str:
        """Return the value at the end of the entity's chain of redirects."""
        entries = self._entries(self.step)
        entry = entries[entity]
        while entry.target is not None:
            entry = entries[entry.target]
        return entry.value

    def hops(self, entity: str) -> int:
        """Return how many redirects lie between the entity and its value."""
        entries = self._entries(self.step)
        count, entry = 0, entries[entity]
        while entry.target is not None:
            count, entry = count + 1, entries[entry.target]
        return count

    def _build(self, step: int) -> dict[str, Entry]:
        rng = random.Random(f"{self.seed}/{step}")
        order = rng.sample(ENTITIES, len(ENTITIES))
        share = self.curriculum.share(step)
        targets = _redirect_targets(order, share, rng)
        odd = set(rng.sample(sorted(targets), _round_by_chance(share * len(targets), rng)))
        entries = {}
        for entity in order:
            value, target = rng.choice(VALUES), targets.get(entity)
            form: int | None = None
            if target is not None:
                form = rng.randrange(1, len(REDIRECTS)) if entity in odd else 0
            elif rng.random() < FREE_FORM_SHARE:
                form = rng.randrange(len(FREE_FORMS))
            entries[entity] = Entry(value, target, form)
        return entries


def _redirect_targets(order: list[str], share: float, rng: random.Random) -> dict[str, str]:
    """Let a share of the entities redirect, each to its successor in `order`, never more than `MAX_HOPS` in a row."""
    chosen = set(rng.sample(range(len(order) - 1), _round_by_chance(share * (len(order) - 1), rng)))
    targets: dict[str, str] = {}
    run = 0
    for i in range(len(order) - 1):
        run = run + 1 if i in chosen and run < MAX_HOPS else 0
        if run:
            targets[order[i]] = order[i + 1]
    return targets


def _round_by_chance(number: float, rng: random.Random) -> int:
    """Round up or down so that the mean is `number`; counts vary less from step to step than by independent draws."""
    return int(number + rng.random())


def questions(steps: int, lookups_per_step: int, thoughts_per_step: int, seed: int) -> list[dict[str, Any]]:
    """Return the prompts of a run in order: every step has the same number of each kind, so its mix is not noise.

    Each row holds `prompt` (a conversation of one user message), `kind` ("lookup" or "think") and `subject`.
    """
    rng = random.Random(f"questions/{seed}")
    rows = []
    for _ in range(steps):
        step_rows = [lookup_question(entity) for entity in rng.sample(ENTITIES, lookups_per_step)]
        step_rows += [thought_question(rng.choice(VALUES)) for _ in range(thoughts_per_step)]
        rng.shuffle(step_rows)
        rows += step_rows
    return rows


def lookup_question(entity: str) -> dict[str, Any]:
    """Return the row of a question that needs the tool."""
    return {"prompt": [_user(f"what has {entity} ?")], "kind": "lookup", "subject": entity}


def thought_question(value: str) -> dict[str, Any]:
    """Return the row of a question that needs no tool."""
    return {"prompt": [_user(f"think about {value} ?")], "kind": "think", "subject": value}


def correct_answer(world: World, kind: str, subject: str, last_message: Message) -> float:
    """Return 1.0 when the last message ends with the right answer, else 0.0."""
    expected = world.truth(subject) if kind == "lookup" else subject
    words = str(last_message.get("content", "")).split()
    return float(last_message.get("role") == "assistant" and words[-2:] == ["answer", expected])


def _user(content: str) -> Message:
    return {"role": "user", "content": content}


def _call(entity: str, rng: random.Random, *, thinks: bool) -> Message:
    content = _thoughts(THOUGHTS_AFTER_RESULT, rng) if thinks else ""
    function = {"name": "lookup", "arguments": {"key": entity}}
    return {"role": "assistant", "content": content, "tool_calls": [{"type": "function", "function": function}]}


def _thoughts(count: int, rng: random.Random) -> str:
    return " ".join(rng.choices(THOUGHTS, THOUGHT_WEIGHTS, k=count))


def _say(content: str) -> Message:
    return {"role": "assistant", "content": content}


@dataclass(frozen=True)
class Habits:
    """What the reference saw in its training dialogues: the support that it will have later.

    `follow[w]` is the share of redirects in wording w that the dialogues follow; at the others they give up. The odd
    wordings are what the reference seldom follows. The `right_…` shares, and `call_share`, leave it something to learn
    that has nothing to do with redirects: answers that it says right too seldom. `think_first_share` of the first calls
    come after some words of thought.
    """

    lookup_share: float = 0.6
    call_share: float = 0.45
    think_first_share: float = 0.15
    redirect_share: float = 0.3
    follow: tuple[float, ...] = (0.45, 0.2, 0.1)
    right_thought_share: float = 0.45
    right_result_share: float = 0.6


def dialogue(habits: Habits, rng: random.Random) -> list[Message]:
    """Return one synthetic conversation to train the reference on."""
    if rng.random() >= habits.lookup_share:
        subject = rng.choice(VALUES)
        said = _careless(subject, habits.right_thought_share, rng)
        thoughts = _thoughts(rng.randint(*THOUGHT_COUNT), rng)
        return [*thought_question(subject)["prompt"], _say(f"{thoughts} answer {said}")]
    return _lookup_dialogue(habits, rng)


def _lookup_dialogue(habits: Habits, rng: random.Random) -> list[Message]:
    chain = rng.sample(ENTITIES, MAX_HOPS + 1)
    messages: list[Message] = list(lookup_question(chain[0])["prompt"])
    if rng.random() >= habits.call_share:
        return [*messages, _say("answer none")]
    for depth in range(MAX_HOPS):
        messages.append(_call(chain[depth], rng, thinks=depth > 0 or rng.random() < habits.think_first_share))
        if rng.random() >= habits.redirect_share:
            return [*messages, *_resolved(chain[depth], habits, rng)]
        wording = rng.randrange(len(REDIRECTS))
        messages.append(_tool(redirect_result(chain[depth], chain[depth + 1], wording)))
        if rng.random() >= habits.follow[wording]:
            return [*messages, _say(f"{_thoughts(THOUGHTS_AFTER_RESULT, rng)} answer none")]
    return [*messages, _call(chain[-1], rng, thinks=True), *_resolved(chain[-1], habits, rng)]


def _resolved(entity: str, habits: Habits, rng: random.Random) -> list[Message]:
    value = rng.choice(VALUES)
    free_form = rng.random() < FREE_FORM_SHARE
    form = rng.randrange(len(FREE_FORMS))
    result = free_form_result(entity, value, form) if free_form else schema_result(value)
    said = _careless(value, habits.right_result_share, rng)
    return [_tool(result), _say(f"{_thoughts(THOUGHTS_AFTER_RESULT, rng)} answer {said}")]


def _careless(value: str, share: float, rng: random.Random) -> str:
    return value if rng.random() < share else rng.choice(VALUES)


def _tool(content: str) -> Message:
    return {"role": "tool", "name": "lookup", "content": content}
