"""Writing traces while an agent works: one event a line, each on disk before the agent goes on."""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import msgspec

from foreshock.errors import InputError
from foreshock.traces.episode import ERROR, FINISHED
from foreshock.traces.events import END, PARSE_ERROR, START

Result = TypeVar("Result")

_KINDS = {"user": "user_message", "assistant": "assistant_message", "system": "system_message"}


class TraceLog:
    """A trace file that is only ever appended to: a kill loses no event that was written before it.

    Each event is one write of one whole line, so that threads and processes may share a file of a local disk. A file
    that ends in the middle of a line, as after a full disk, is taken up on a new one.

        with TraceLog("traces.jsonl") as log:
            with log.episode(prompt="Which files import numpy?", step=12) as episode:
                files = episode.call_tool("search", {"q": "import numpy"}, search)
                episode.assistant("These do: …", tokens=40)
                episode.success = True
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Open a file to append to, and make its folder.

        Raises:
            OSError: it cannot be opened.
        """
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        if (size := os.fstat(self._file).st_size) and os.pread(self._file, 1, size - 1) != b"\n":
            os.write(self._file, b"\n")
        self._lock = threading.Lock()

    def episode(
        self,
        *,
        prompt: str = "",
        episode_id: str = "",
        group: str = "",
        step: int | None = None,
        tools: list[Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> EpisodeLog:
        """Begin an episode, to be used in a ``with`` statement.

        ``group``: what is equal for attempts at one task; the prompt if empty. ``step``: the optimizer step.
        ``tools``: the schemas of the tools, for data sets.
        """
        start = {"group": group or None, "step": step, "tools": tools, "metadata": metadata}
        return EpisodeLog(self, episode_id or uuid.uuid4().hex, prompt, start)

    def write(self, event: Mapping[str, Any]) -> None:
        """Append one event. What JSON does not know is written as text.

        Raises:
            InputError: the log is closed.
            OSError: the event cannot be written.
        """
        line = _encoded(event) + b"\n"
        with self._lock:
            if self._file < 0:
                raise InputError(f"The trace log {str(self.path)!r} is closed. Write inside its `with` block.")
            while line:  # a disk that fills up takes a part
                line = line[os.write(self._file, line) :]

    def flush(self) -> None:
        """Wait until all events are on the disk, safe from a loss of power too; a kill needs none of it."""
        os.fsync(self._file)

    def close(self) -> None:
        """Close the file; closing twice is fine."""
        with self._lock:
            if self._file >= 0:
                os.close(self._file)
                self._file = -1

    def __enter__(self) -> TraceLog:
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        self.close()


class EpisodeLog:
    """One episode of a :class:`TraceLog`.

    ``success``, ``reward``, ``termination``, ``tokens`` and ``cost`` are written when it ends, as far as they are set.
    An exception ends it with the termination ``error``, or ``wall clock`` for a TimeoutError, and goes on.
    """

    def __init__(self, log: TraceLog, episode_id: str, prompt: str, start: Mapping[str, Any]) -> None:
        self.id = episode_id
        self.success: bool | None = None
        self.reward: float | None = None
        self.termination = ""
        self.tokens: int | None = None
        self.cost: float | None = None
        self._log = log
        self._prompt = prompt
        self._start = start
        self._calls = 0

    def __enter__(self) -> EpisodeLog:
        self._write(START, **self._start)
        if self._prompt:
            self.message("user", self._prompt)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        cut = "wall clock" if isinstance(error, TimeoutError) else ERROR if error is not None else FINISHED
        self._write(
            END,
            success=self.success,
            reward=self.reward,
            termination=self.termination or cut,
            total_tokens=self.tokens,
            total_cost=self.cost,
            error=None if error is None else repr(error),
        )

    def message(self, role: str, content: str, *, tokens: int | None = None) -> None:
        """Write what the ``user``, the ``assistant`` (the policy) or the ``system`` says.

        Raises:
            InputError: the role is another one.
        """
        if role not in _KINDS:
            raise InputError(f"Got the role {role!r}. Expected one of: {', '.join(_KINDS)}; tools have call_tool.")
        self._write(_KINDS[role], content=content, tokens=tokens)

    def assistant(self, content: str, *, tokens: int | None = None) -> None:
        """Write what the policy says."""
        self.message("assistant", content, tokens=tokens)

    def parse_error(self, content: str) -> None:
        """Write what the policy said when a tool call in it could not be parsed."""
        self._write(PARSE_ERROR, content=content)

    def call_tool(self, name: str, arguments: Mapping[str, Any], function: Callable[..., Result]) -> Result:
        """Call ``function(**arguments)``; write the call and its answer, or the error, which then goes on."""
        call_id = f"call_{self._calls}"
        self._calls += 1
        self._write("tool_call", tool=name, arguments=arguments, call_id=call_id)
        begun = time.monotonic()
        try:
            result = function(**arguments)
        except BaseException as error:
            self._answer(name, call_id, begun, error=f"{type(error).__name__}: {error}")
            raise
        self._answer(name, call_id, begun, result=result)
        return result

    def _answer(self, name: str, call_id: str, begun: float, **answer: Any) -> None:
        seconds = round(time.monotonic() - begun, 6)
        self._write("tool_result", tool=name, call_id=call_id, seconds=seconds, **answer)

    def _write(self, kind: str, **fields: Any) -> None:
        given = {key: value for key, value in fields.items() if value is not None}
        self._log.write({"episode_id": self.id, "type": kind, "time": round(time.time(), 3), **given})


def _encoded(event: Mapping[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(event, enc_hook=repr)
    except (TypeError, ValueError, OverflowError, RecursionError):  # keys or characters that JSON does not have
        return msgspec.json.encode({key: value if _is_plain(value) else ascii(value) for key, value in event.items()})


def _is_plain(value: Any) -> bool:
    return isinstance(value, (bool, float)) or (isinstance(value, str) and value.isascii())
