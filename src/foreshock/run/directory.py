"""The run directory: plain append-only files with one writer.

``run.json`` holds one entry a session (a start or a resume), ``metrics.jsonl`` one line a logged step,
``blocks.jsonl`` one line a block, ``findings.jsonl`` one line a finding. Every line carries the number of its session.
A session that starts at step s supersedes what earlier sessions wrote for later steps; both stay on disk.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from foreshock.errors import ReadError, RunDirectoryError
from foreshock.run.block import Block
from foreshock.run.stored import keep_on_disk

SCHEMA = 1
LARGEST_STEP = 2**62
RUN, METRICS, BLOCKS, FINDINGS = "run.json", "metrics.jsonl", "blocks.jsonl", "findings.jsonl"

Record = dict[str, Any]


def prepare_directory(path: str | os.PathLike[str]) -> Path:
    """Create a run directory, or check that an existing one can be appended to.

    Raises:
        RunDirectoryError: the path is a file, cannot be created or written to, or holds files of a later schema.
    """
    folder = Path(path)
    if folder.exists() and not folder.is_dir():
        raise RunDirectoryError(f"run_dir {str(folder)!r} is a file. Pass a folder, existing or new.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in (METRICS, BLOCKS, FINDINGS):
            with open(folder / name, "ab"):
                pass
    except OSError as error:
        raise RunDirectoryError(
            f"run_dir {str(folder)!r} cannot be written to ({error.strerror or error}). Pass a writable folder."
        ) from error
    read_sessions(folder)
    return folder


def utc_now() -> str:
    """Return the time as it stands in ``run.json``: ISO 8601, UTC, to the second."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


class RunWriter:
    """Appends records of one session to a run directory. Only one process may write to a directory.

    Every record reaches the operating system before the call returns, so that a killed process loses none.
    """

    def __init__(
        self, folder: Path, *, start_step: int, identity: Mapping[str, Any], notices: Mapping[str, str]
    ) -> None:
        """Open a session that starts after ``start_step`` optimizer steps.

        Raises:
            RunDirectoryError: a file of the directory cannot be opened for appending.
        """
        self.folder = folder
        self._blocks_file = (folder / BLOCKS).absolute()
        self._sessions = read_sessions(folder)
        self.session = len(self._sessions)
        self._sessions.append(
            {
                "session": self.session,
                "start_step": start_step,
                "started": utc_now(),
                "status": "running",
                "notices": dict(notices),
                "identity": dict(identity),
            }
        )
        try:
            self._files: dict[str, BinaryIO] = {
                name: _open_for_append(folder / name) for name in (METRICS, BLOCKS, FINDINGS)
            }
            self._write_sessions()
        except OSError as error:
            raise RunDirectoryError(f"run_dir {str(folder)!r} cannot be written to ({error}).") from error

    def write_metrics(self, step: int, values: Mapping[str, Any]) -> None:
        """Append the scalars that the trainer logged at an optimizer step."""
        self._append(METRICS, {"step": step, "time": round(time.time(), 3), "values": dict(values)})

    def write_block(self, block: Block) -> Block:
        """Append a block and return it as it is to be kept: its content is read from the file when asked for."""
        return keep_on_disk(block, self._blocks_file, *self._append(BLOCKS, block.to_record()))

    def write_finding(self, finding: Mapping[str, Any]) -> None:
        """Append a finding as it stood when it was raised."""
        self._append(FINDINGS, dict(finding))

    def update_session(self, **values: Any) -> None:
        """Set fields of this session in ``run.json``; the file is replaced in one move, never half-written."""
        sessions = read_sessions(self.folder)  # another writer may have opened a session of its own meanwhile
        sessions[self.session : self.session + 1] = [{**self._sessions[self.session], **values}]
        self._sessions = sessions
        self._write_sessions()

    def end(self, status: str) -> None:
        """Write how the session ended."""
        self.update_session(status=status, ended=utc_now())

    def close(self) -> None:
        """Close the files; a closed writer takes no more records."""
        for file in self._files.values():
            file.close()

    def _append(self, name: str, record: Record) -> tuple[int, int]:
        """Write a line; return at which byte it begins and how long it is."""
        line = msgspec.json.encode({"schema": SCHEMA, "session": self.session, **_finite(record)}) + b"\n"
        file = self._files[name]
        file.write(line)
        file.flush()
        return file.tell() - len(line), len(line)

    def _write_sessions(self) -> None:
        target = self.folder / RUN
        draft = target.with_suffix(".json.tmp")
        content = msgspec.json.format(
            msgspec.json.encode(_finite({"schema": SCHEMA, "sessions": self._sessions})), indent=2
        )
        draft.write_bytes(content + b"\n")
        os.replace(draft, target)


def read_sessions(folder: Path) -> list[Record]:
    """Return the sessions of a run directory, oldest first; none when it has no ``run.json``.

    Raises:
        ReadError: ``run.json`` is damaged, or was written by a later version.
    """
    path = folder / RUN
    if not path.is_file():
        return []
    try:
        content = msgspec.json.decode(path.read_bytes())
        schema, sessions = content["schema"], content["sessions"]
        if not isinstance(sessions, list) or not all(_is_session(session) for session in sessions):
            raise ReadError(
                f"{str(path)!r} does not hold a list of sessions. It was not written by Foreshock, or is damaged."
            )
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
        raise ReadError(
            f"{str(path)!r} cannot be read as a run ({error}). It was not written by Foreshock, or is damaged."
        ) from error
    if schema != SCHEMA:
        raise ReadError(f"{str(path)!r} has schema {schema!r}, this version reads schema {SCHEMA}. Upgrade Foreshock.")
    return sessions


def _is_session(session: Any) -> bool:
    return isinstance(session, dict) and is_step(session.get("start_step"))


def is_step(step: Any) -> bool:
    """Whether a value of a record can be an optimizer step."""
    return isinstance(step, int) and 0 <= step < LARGEST_STEP


def _open_for_append(path: Path) -> BinaryIO:
    """Open a file for appending whole lines, ending a line that a killed writer left torn."""
    file = open(path, "ab")  # noqa: SIM115 - stays open for the session
    with contextlib.suppress(OSError), open(path, "rb") as reader:
        reader.seek(-1, os.SEEK_END)
        if reader.read(1) != b"\n":
            file.write(b"\n")
            file.flush()
    return file


def _finite(value: Any) -> Any:
    """Write NaN and infinities as the words that Python and pandas read back, since JSON has no number for them."""
    if isinstance(value, float) and value != value:
        return "nan"
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return "inf" if value > 0 else "-inf"
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value
