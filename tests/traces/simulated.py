"""Simulated traces of a tool-using agent: healthy by default, sick in one way when asked."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from foreshock.traces import Traces
from foreshock.traces.rows import episode_of

WORDS = (
    "the", "a", "file", "order", "table", "value", "result", "answer", "query", "date", "city", "price", "item",
    "list", "user", "page", "test", "code", "error", "line", "step", "first", "then", "next", "because", "so",
    "found", "shows", "returns", "holds", "matches", "total", "number", "of", "in", "for", "with", "from", "after",
    "before", "check", "compare", "open", "read", "write", "compute", "search", "select", "keep", "drop", "merge",
    "sort", "count",
)  # fmt: skip
TOOLS = ("search", "read_file", "run_tests")
ERRORS = ("TimeoutError: no answer in 30 s", "FileNotFoundError: no such file", "ValueError: invalid argument 'line'")

Sickness = Callable[[dict[str, Any], random.Random, float], None]
"""Changes a row; the number is how far the run has come, 0 to 1."""


def sentence(rng: random.Random, words: int) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(words)).capitalize() + "."


def call(rng: random.Random) -> dict[str, Any]:
    """Make a call; no two tools take the same arguments, and one takes none at times."""
    name = rng.choice(TOOLS)
    arguments: dict[str, Any] = {"q": sentence(rng, rng.randint(2, 5))}
    if name == "read_file":
        arguments = {"path": sentence(rng, 3), "line": rng.randint(1, 9)}
    if name == "run_tests":
        arguments = {"names": [sentence(rng, 2) for _ in range(rng.randint(1, 3))]} if rng.random() < 0.8 else {}
    return {"name": name, "arguments": arguments}


def row(rng: random.Random, step: int, prompt: str, skill: float) -> dict[str, Any]:
    """Make one healthy episode: some calls, a few of which fail, some that are asked again, and an answer."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": prompt}]
    calls = rng.choice((0, 1, 2, 2, 3, 3, 4, 6))
    for place in range(calls):
        function = call(rng)
        if place and rng.random() < 0.08:
            function = messages[1]["tool_calls"][0]["function"]
        called = {"id": f"c{place}", "type": "function", "function": function}
        messages.append({"role": "assistant", "content": sentence(rng, 12), "tool_calls": [called]})
        failed = rng.random() < 0.1
        result = rng.choice(ERRORS) if failed else sentence(rng, 20)
        messages.append({"role": "tool", "tool_call_id": f"c{place}", "content": result})
    answer = " ".join(sentence(rng, rng.randint(6, 16)) for _ in range(rng.randint(1, 12)))
    if rng.random() < 0.03:
        answer = "I'm sorry, but I can't help with that. " + answer
    cut = rng.random()
    success = rng.random() < skill
    return {
        "id": f"s{step}-{rng.getrandbits(32):08x}",
        "messages": [*messages, {"role": "assistant", "content": "" if rng.random() < 0.005 else answer}],
        "step": step,
        "success": success,
        "reward": float(success) + rng.choice((0.0, 0.1)),
        "termination": "max_tokens" if cut < 0.03 else "timeout" if cut < 0.04 else "stop",
        "total_tokens": int(rng.lognormvariate(7, 0.5)),
        "total_cost": rng.lognormvariate(-6, 0.5),
    }


def rows(
    seed: int, sickness: Sickness | None = None, *, steps: int = 20, prompts: int = 4, attempts: int = 4
) -> list[Any]:
    """Make a run: a success rate that differs by prompt and improves a little with the steps."""
    rng = random.Random(seed)
    made = []
    for step in range(1, steps + 1):
        for _ in range(prompts):
            prompt, ease = sentence(rng, 10), rng.uniform(0.1, 0.9)
            for _ in range(attempts):
                made.append(row(rng, step, prompt, min(1, ease + 0.1 * step / steps)))
                if sickness:
                    sickness(made[-1], rng, step / steps)
    return made


def traces(seed: int, sickness: Sickness | None = None, **options: int) -> Traces:
    made = [episode_of(made, "row") for made in rows(seed, sickness, **options)]
    return Traces(Path("simulated"), "simulated", [episode for episode in made if episode is not None])
