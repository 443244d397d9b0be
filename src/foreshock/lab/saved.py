"""Finished runs as small archives: the benchmark set under ``experiments/``.

An archive is a run directory as ``.tar.gz``: ``run.json``, ``metrics.jsonl`` and ``blocks.jsonl``, without reports and
without what names the machine. It needs nothing but tar to be read by other tools.
"""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

from foreshock.run.directory import BLOCKS, METRICS, RUN

KEPT_OF_A_SESSION = ("session", "start_step", "status", "notices")
KEPT_OF_IDENTITY = ("trainer", "watch")


def save(run_dir: Path, target: Path) -> None:
    """Write a run directory as an archive; the same run gives the same bytes."""
    with (
        target.open("wb") as file,
        gzip.GzipFile("", "wb", 9, file, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w") as archive,
    ):
        for name, content in _files(run_dir):
            entry = tarfile.TarInfo(f"{target.name.removesuffix('.tar.gz')}/{name}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))


def unpack(archive: Path, folder: Path) -> Path:
    """Unpack an archive below a folder and return its run directory, which is read as any other."""
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    return folder / archive.name.removesuffix(".tar.gz")


def _files(run_dir: Path) -> Iterator[tuple[str, bytes]]:
    record = msgspec.json.decode((run_dir / RUN).read_bytes())
    for session in record["sessions"]:
        identity = session.get("identity", {})
        for key in [key for key in session if key not in KEPT_OF_A_SESSION]:
            del session[key]
        session["identity"] = {key: identity[key] for key in KEPT_OF_IDENTITY if key in identity}
    yield RUN, msgspec.json.encode(record)
    for name in (METRICS, BLOCKS):
        yield name, (run_dir / name).read_bytes()
