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
THOUGHT_COUNT = (7, 11)
THOUGHT_COUNT_AFTER_RESULT = (2, 4)
# Common words of thought are common, rare ones rare: 1, 1/2, 1/3, …
THOUGHT_WEIGHTS = tuple(1.0 / (rank + 1) for rank in range(len(THOUGHTS)))
FREE_FORM_SHARE = 0.15

Message = dict[str, Any]


def schema_result(value: str) -> str:
    """Return the tool result in its fixed form."""
    return f"value = {value}"


def free_form_result(entity: str, value: str, rng: random.Random) -> str:
    """Return the tool result as one of several sentences."""
    return rng.choice((f"{entity} holds {value}", f"found {value} for {entity}", f"value for {entity} is {value}"))


def redirect_result(entity: str, target: str, rng: random.Random) -> str:
    """Return a result that holds no value and names the key to ask for next."""
    return rng.choice(
        (f"{entity} moved to {target}", f"not {entity} ask {target}", f"not known for {entity} see {target}")
    )


@dataclass(frozen=True)
class Entry:
    """What the tool knows about one entity during one step."""

    result: str
    value: str
    target: str | None


@dataclass(frozen=True)
class Curriculum:
    """The share of keys that redirect, as a function of the step: `start` until `ramp_from`, `end` from `ramp_to` on."""

    start: float
    end: float
    ramp_from: int
    ramp_to: int

    def share(self, step: int) -> float:
        """Return the share at `step`, linear between the two ends of the ramp."""
        progress = (step - self.ramp_from) / max(1, self.ramp_to - self.ramp_from)
        return self.start + (self.end - self.start) * min(1.0, max(0.0, progress))


class World:
    """The tool and its answers. Every step has new values and redirects, all a pure function of (seed, step).

    With `constrained` the tool follows redirects itself and always answers in the fixed form.
    """

    def __init__(self, curriculum: Curriculum, *, seed: int, constrained: bool) -> None:
        self.curriculum = curriculum
        self.seed = seed
        self.constrained = constrained
        self.step = 0
        self._entries = lru_cache(maxsize=2)(self._build)

    def lookup(self, key: str) -> str:
        """Look up the value that an entity has.

        Args:
            key: The name of the entity.

        Returns:
            The value, or the name of the entity to ask for instead.
        """
        entries = self._entries(self.step)
        entry = entries.get(key.strip())
        if entry is None:
            return "none"
        return schema_result(self.truth(key.strip())) if self.constrained else entry.result

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
        targets = _redirect_targets(order, self.curriculum.share(step), rng)
        entries = {}
        for entity in order:
            value, target = rng.choice(VALUES), targets.get(entity)
            if target is not None:
                result = redirect_result(entity, target, rng)
            elif rng.random() < FREE_FORM_SHARE:
                result = free_form_result(entity, value, rng)
            else:
                result = schema_result(value)
            entries[entity] = Entry(result, value, target)
        return entries


def _redirect_targets(order: list[str], share: float, rng: random.Random) -> dict[str, str]:
    """Let a share of the entities redirect, each to its successor in `order`, never more than `MAX_HOPS` in a row."""
    chosen = set(rng.sample(range(len(order) - 1), round(share * (len(order) - 1))))
    targets: dict[str, str] = {}
    run = 0
    for i in range(len(order) - 1):
        run = run + 1 if i in chosen and run < MAX_HOPS else 0
        if run:
            targets[order[i]] = order[i + 1]
    return targets


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


def _call(entity: str, rng: random.Random | None) -> Message:
    """Return a tool call; after a result (with `rng`) some words of thought come before it."""
    content = _thoughts(THOUGHT_COUNT_AFTER_RESULT, rng) if rng else ""
    function = {"name": "lookup", "arguments": {"key": entity}}
    return {"role": "assistant", "content": content, "tool_calls": [{"type": "function", "function": function}]}


def _thoughts(count: tuple[int, int], rng: random.Random) -> str:
    return " ".join(rng.choices(THOUGHTS, THOUGHT_WEIGHTS, k=rng.randint(*count)))


def _say(content: str) -> Message:
    return {"role": "assistant", "content": content}


@dataclass(frozen=True)
class Habits:
    """What the reference saw in its training dialogues: the support that it will have later.

    `follow[d]` is the share of redirects at depth d that the dialogues follow; at the others they give up. It falls with
    depth: long chains are what the reference seldom saw.
    """

    lookup_share: float = 0.6
    call_share: float = 0.55
    redirect_share: float = 0.3
    follow: tuple[float, ...] = (0.35, 0.14, 0.05)
    right_thought_share: float = 0.55
    right_result_share: float = 0.6


def dialogue(habits: Habits, rng: random.Random) -> list[Message]:
    """Return one synthetic conversation to train the reference on."""
    if rng.random() >= habits.lookup_share:
        subject = rng.choice(VALUES)
        said = _careless(subject, habits.right_thought_share, rng)
        return [*thought_question(subject)["prompt"], _say(f"{_thoughts(THOUGHT_COUNT, rng)} answer {said}")]
    return _lookup_dialogue(habits, rng)


def _lookup_dialogue(habits: Habits, rng: random.Random) -> list[Message]:
    chain = rng.sample(ENTITIES, MAX_HOPS + 1)
    messages: list[Message] = list(lookup_question(chain[0])["prompt"])
    if rng.random() >= habits.call_share:
        return [*messages, _say(f"answer {rng.choice(VALUES)}")]
    for depth in range(MAX_HOPS):
        messages.append(_call(chain[depth], rng if depth else None))
        if rng.random() >= habits.redirect_share:
            return [*messages, *_resolved(chain[depth], habits, rng)]
        messages.append(_tool(redirect_result(chain[depth], chain[depth + 1], rng)))
        if rng.random() >= habits.follow[depth]:
            return [*messages, _say(f"{_thoughts(THOUGHT_COUNT_AFTER_RESULT, rng)} answer none")]
    return [*messages, _call(chain[-1], rng), *_resolved(chain[-1], habits, rng)]


def _resolved(entity: str, habits: Habits, rng: random.Random) -> list[Message]:
    value = rng.choice(VALUES)
    free_form = rng.random() < FREE_FORM_SHARE
    result = free_form_result(entity, value, rng) if free_form else schema_result(value)
    said = _careless(value, habits.right_result_share, rng)
    return [_tool(result), _say(f"{_thoughts(THOUGHT_COUNT_AFTER_RESULT, rng)} answer {said}")]


def _careless(value: str, share: float, rng: random.Random) -> str:
    return value if rng.random() < share else rng.choice(VALUES)


def _tool(content: str) -> Message:
    return {"role": "tool", "name": "lookup", "content": content}
