"""One event a line: what :class:`foreshock.TraceLog` writes, and other logs of the same kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from foreshock.traces.chat import as_text, calls_of, message
from foreshock.traces.episode import ERROR, UNFINISHED, Episode
from foreshock.traces.rows import GROUPS, STEPS, first_of, labels, number, whole

START, END, PARSE_ERROR = "episode_start", "episode_end", "tool_parse_error"
ROLES = {"user_message": "user", "assistant_message": "assistant", "system_message": "system"}
KINDS = (START, END, PARSE_ERROR, "tool_call", "tool_result", "error", *ROLES)

OTHER = "events of an unknown type"


def is_event(row: Mapping[str, Any]) -> bool:
    """Say whether a row is one event of an episode."""
    return isinstance(row.get("episode_id"), (str, int)) and row.get("type") in KINDS


class Events:
    """Collects events, which may come interleaved, into episodes in the order in which these began."""

    def __init__(self) -> None:
        self.drafts: list[_Draft] = []
        self.skipped: Counter[str] = Counter()
        self._open: dict[str, _Draft] = {}

    def add(self, row: Mapping[str, Any]) -> None:
        """Add one event; an id that is used again after its end begins another episode."""
        name, kind = str(row["episode_id"]), row["type"]
        draft = self._open.get(name)
        if draft is None:
            draft = self._open[name] = _Draft(name)
            self.drafts.append(draft)
        draft.add(kind, row)
        if kind == END:
            del self._open[name]

    def episodes(self) -> list[Episode]:
        """Return the episodes; one without an end is unfinished where others have one."""
        some_end = any(draft.end for draft in self.drafts)
        return [draft.episode(UNFINISHED if some_end else "") for draft in self.drafts]


class _Draft:
    """An episode that is still being read."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.messages: list[dict[str, Any]] = []
        self.start: Mapping[str, Any] = {}
        self.end: Mapping[str, Any] = {}
        self.failed = False
        self.tokens: list[float] = []
        self.steps: list[Any] = []
        self._calls = 0
        self._unanswered: list[str] = []
        self._may_call = False

    def add(self, kind: str, row: Mapping[str, Any]) -> None:
        tokens = number(row.get("tokens"))
        if tokens is not None:
            self.tokens.append(tokens)
        self.steps.append(first_of(row, STEPS))
        if kind == START:
            self.start = row
        elif kind == END:
            self.end = row
        elif kind == "error":
            self.failed = True
        elif kind == "tool_call":
            self._call(row)
        elif kind == "tool_result":
            self._answer(row)
        elif kind == PARSE_ERROR:
            self._say("assistant", as_text(row.get("content")), parse_error=True)
        else:
            self._say(ROLES[kind], as_text(row.get("content")))
        self._may_call = kind in ("assistant_message", "tool_call")

    def _say(self, role: str, content: str, **marks: bool) -> None:
        self.messages.append({"role": role, "content": content, **marks})

    def _call(self, row: Mapping[str, Any]) -> None:
        """Add a call to the message before it, when the policy spoke last, else as a message of its own."""
        if not self._may_call:
            self._say("assistant", "")
        name = as_text(first_of(row, ("tool", "name", "tool_name")))
        arguments = first_of(row, ("args", "arguments", "input"))
        raw = {"id": _call_id(row) or f"call_{self._calls}", "name": name, "arguments": arguments}
        self._calls += 1
        self._unanswered.append(raw["id"])
        call = message({"role": "assistant", "tool_calls": [raw]})["tool_calls"]
        self.messages[-1].setdefault("tool_calls", []).extend(call)

    def _answer(self, row: Mapping[str, Any]) -> None:
        result, error = first_of(row, ("result", "output", "content")), row.get("error")
        call_id = _call_id(row) or (self._unanswered[0] if self._unanswered else "")
        if call_id in self._unanswered:
            self._unanswered.remove(call_id)
        content = as_text(error if result is None else result)
        self.messages.append(message({"role": "tool", "content": content, "tool_call_id": call_id, "error": error}))

    def _step(self) -> int | None:
        """Return the optimizer step: as named, or what all events share; a step that counts events is none."""
        named = first_of({**self.start, **self.end}, STEPS[1:]) or self.start.get("step")
        shared = self.steps[0] if len(self.steps) > 1 and all(step == self.steps[0] for step in self.steps) else None
        return whole(shared if named is None else named)

    def episode(self, without_end: str) -> Episode:
        first = next((i for i, part in enumerate(self.messages) if part["role"] == "assistant"), len(self.messages))
        prompt, response = self.messages[:first], self.messages[first:]
        found = labels({**self.start, **self.end})
        found["step"] = self._step()
        if found["tokens"] is None and self.tokens:
            found["tokens"] = int(sum(self.tokens))
        if not found["termination"]:
            found["termination"] = ERROR if self.failed else "" if self.end else without_end
        group = first_of(self.start, GROUPS)
        calls, parse_errors = calls_of(response)
        return Episode(
            id=self.name,
            prompt=prompt,
            response=response,
            calls=calls,
            group=as_text(prompt) if group is None else as_text(group),
            parse_errors=parse_errors,
            tools=self.start["tools"] if isinstance(self.start.get("tools"), list) else (),
            **found,
        )


def _call_id(row: Mapping[str, Any]) -> str:
    return as_text(row.get("call_id") or row.get("tool_call_id"))
