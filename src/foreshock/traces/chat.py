"""Messages of a chat: one form for all spellings, the calls in them, and what their answers tell."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from foreshock.traces.episode import ToolCall

OBSERVATION_ROLES = ("tool", "function", "environment", "observation", "ipython")

_CALL = re.compile(r"<tool_call>(.*?)(?:</tool_call>|$)", re.DOTALL)
_ANSWER = re.compile(r"(?:\n?(?:user|tool)\n)?<tool_response>(.*?)(?:</tool_response>|$)", re.DOTALL)
_THOUGHT = re.compile(r"<think>.*?(?:</think>|$)", re.DOTALL)
_HALF_PAIR = re.compile("[\ud800-\udfff]")
_MARKUP = re.compile(r"<\|(?:im_start|im_end|endoftext|eot_id)\|>")
_NAMED = re.compile(r"\b([A-Z][A-Za-z]*(?:Error|Exception|Timeout|Expired|Interrupt))\b")
_STARTS = re.compile(
    r"\s*(?:\[?error\]?(?:$|\s*[:\d]|\s+(?:occurred|while|calling|executing|running|in\b))|exception(?:$|\s*:|\s+occurred)"
    r"|traceback \(most recent|failed to\b|[a-z]\w*(?:error|exception)(?:$|\s*:))",
    re.IGNORECASE,
)

KINDS = (
    ("timeout", r"time[sd]?[ -]?out|deadline"),
    ("rate limit", r"rate.?limit|too many requests|\b429\b|quota"),
    ("permission", r"permission|forbidden|unauthori[sz]ed|access denied|\b40[13]\b"),
    ("unknown tool", r"(?:unknown|no such|unsupported|undefined) (?:tool|function)|tool .*not (?:found|available)"),
    ("not found", r"not found|no such|does not exist|\b404\b"),
    ("invalid arguments", r"invalid|unexpected keyword|missing .*argument|required|schema|validation|malformed|parse"),
    ("unavailable", r"unavailable|connection|refused|unreachable|\b50[0234]\b"),
)
"""Kinds of error by words of their message, for messages that name no exception; English."""
_KINDS = tuple((kind, re.compile(words, re.IGNORECASE)) for kind, words in KINDS)


def is_messages(value: Any) -> bool:
    """Say whether a value is a list of chat messages."""
    return isinstance(value, list) and bool(value) and all(isinstance(m, dict) and "role" in m for m in value)


def message(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Bring one message into the OpenAI form: text as content, arguments parsed, keys without a value left out."""
    role = str(raw["role"])
    kept: dict[str, Any] = {
        "role": "tool" if role in OBSERVATION_ROLES else "assistant" if role in ("model", "gpt") else role,
        "content": as_text(raw.get("content")),
    }
    calls = raw.get("tool_calls") or ([{"function": raw["function_call"]}] if raw.get("function_call") else [])
    if isinstance(calls, Iterable) and not isinstance(calls, (str, Mapping)) and (found := [_call(c) for c in calls]):
        kept["tool_calls"] = found
    for key in ("tool_call_id", "name"):
        if raw.get(key):
            kept[key] = str(raw[key])
    if error := raw.get("error") or raw.get("is_error"):
        kept["error"] = kept["content"] or "error" if error is True else as_text(error)
    return kept


def calls_of(messages: Sequence[Mapping[str, Any]]) -> tuple[list[ToolCall], int]:
    """Return the tool calls of messages with their answers, in order, and how many calls could not be parsed.

    An answer belongs to the call that its ``tool_call_id`` names, else to the first call still open. Calls inside the
    text of a message are read in the ``<tool_call>`` form, with their answers when these stand in the text too.
    """
    calls: list[ToolCall] = []
    open_calls: list[tuple[str, int]] = []
    errors = 0
    for part in messages:
        if part["role"] == "tool":
            named = [i for i, (id_, _) in enumerate(open_calls) if id_ and id_ == part.get("tool_call_id")]
            if open_calls:
                _, index = open_calls.pop(named[0] if named else 0)
                calls[index] = answered(calls[index], part["content"], part.get("error"))
        elif part.get("parse_error"):
            errors += 1
        elif part["role"] == "assistant":
            for call in part.get("tool_calls", ()):
                arguments = call["function"]["arguments"]
                errors += isinstance(arguments, str) and arguments.strip() != ""
                open_calls.append((call.get("id", ""), len(calls)))
                calls.append(ToolCall(call["function"]["name"], arguments))
            if "<tool_call>" in part["content"]:
                inside, broken = _calls_in_text(part["content"])
                errors += broken
                open_calls += [("", len(calls) + i) for i, call in enumerate(inside) if call.result is None]
                calls += inside
    return calls, errors


def answered(call: ToolCall, result: str, error: str | None = None) -> ToolCall:
    """Return a call with its answer; without an error of its own, the answer is searched for one."""
    return ToolCall(call.name, call.arguments, result, error_in(result) if error is None else error)


def spoken(content: str) -> str:
    """Return what a message says in words: without thoughts, calls, answers of tools and marks of the template."""
    for pattern in (_ANSWER, _CALL, _THOUGHT, _MARKUP):
        content = pattern.sub(" ", content) if "<" in content else content
    return content.strip()


def is_void(turn: Mapping[str, Any]) -> bool:
    """Say whether a message of the policy holds neither words nor a call."""
    return not turn.get("tool_calls") and "<tool_call>" not in turn["content"] and not spoken(turn["content"])


def error_in(result: str) -> str:
    """Return the error that a tool's answer tells of, "" for none.

    An error is an object with a filled ``error`` (TRL answers so), ``is_error`` or a status of error, or a text that
    begins with one. What a tool reports in other words is not recognised.
    """
    if result.lstrip()[:1] == "{" and isinstance(value := _literal(result), dict):
        error = value.get("error") or value.get("is_error") or value.get("isError")
        if error:
            return as_text(error if error is not True else value.get("content") or value.get("message") or "error")
        return as_text(value.get("message") or "error") if value.get("status") in ("error", "failed") else ""
    return result.strip() if _STARTS.match(result) else ""


def error_kind(error: str) -> str:
    """Return a short name for an error: the exception that it names, else a kind by its words, else ``other``."""
    named = _NAMED.findall(error)
    return named[-1] if named else next((kind for kind, words in _KINDS if words.search(error)), "other")


def as_text(value: Any) -> str:
    """Return a value as text: text without halves of surrogate pairs, content parts, else JSON; "" for None."""
    if isinstance(value, str):
        return _HALF_PAIR.sub("\ufffd", value)
    if value is None:
        return ""
    if isinstance(value, list) and value and all(isinstance(part, dict) and "type" in part for part in value):
        return "".join(as_text(part["text"]) if "text" in part else f"[{part['type']}]" for part in value)
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, RecursionError):
        return str(value)


def _parsed(arguments: Any) -> Any:
    if arguments is None or arguments == "":
        return {}
    if isinstance(arguments, str) and isinstance(value := _literal(arguments), dict):
        return value
    return arguments


def _call(raw: Any) -> dict[str, Any]:
    raw = raw if isinstance(raw, Mapping) else {}
    function = raw.get("function")
    function = function if isinstance(function, Mapping) else raw
    arguments = _parsed(function.get("arguments", function.get("args")))
    found: dict[str, Any] = {
        "type": "function",
        "function": {"name": as_text(function.get("name")), "arguments": _without_nulls(arguments)},
    }
    return {"id": str(raw["id"]), **found} if raw.get("id") else found


def _without_nulls(arguments: Any) -> Any:
    # A table adds an empty argument to each call for every name that another call has.
    if isinstance(arguments, Mapping):
        return {str(key): value for key, value in arguments.items() if value is not None}
    return arguments


def _calls_in_text(content: str) -> tuple[list[ToolCall], int]:
    answers = [match.group(1).strip() for match in _ANSWER.finditer(content)]
    calls, broken = [], 0
    for place, match in enumerate(_CALL.finditer(content)):
        value = _literal(match.group(1))
        result = answers[place] if place < len(answers) else None
        if isinstance(value, dict) and isinstance(value.get("name"), str):
            call = ToolCall(value["name"], _parsed(value.get("arguments")))
            calls.append(call if result is None else answered(call, result))
        else:
            broken += 1
    return calls, broken


def _literal(text: str) -> Any:
    """Decode JSON, or the notation of a Python dict that ``str`` gives; None for neither."""
    text = text.strip()
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        pass
    if not text.startswith("{") or len(text) > 100_000:
        return None
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return None
