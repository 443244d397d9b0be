"""What must be known of a run to repeat it, as far as it does not depend on a framework."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

SECRET = ("token", "key", "password", "secret")
"""A value whose name ends in one of these words is left out of the record."""

HIDDEN = "***"

PACKAGES = ("foreshock", "torch", "trl", "transformers", "accelerate", "peft", "datasets", "vllm", "deepspeed", "numpy")


def environment_identity() -> dict[str, Any]:
    """Return versions, machine, command line and git state of this process; None for what cannot be found out."""
    return {
        "command": without_secrets([Path(sys.argv[0]).name, *sys.argv[1:]]) if sys.argv else [],
        "python": platform.python_version(),
        "platform": platform.platform(),
        "host": platform.node(),
        "processors": os.cpu_count(),
        "packages": {name: version for name in PACKAGES if (version := _version(name)) is not None},
        "git": git_state(Path.cwd()),
    }


def is_secret(name: str) -> bool:
    """Say whether a configuration value or option of this name must not be recorded."""
    return name.lower().rstrip("=").endswith(SECRET)


def without_secrets(arguments: Sequence[str]) -> list[str]:
    """Return a command line with the values of secret options replaced, ``--hub_token x`` and ``--key=x`` alike."""
    shown: list[str] = []
    for argument in arguments:
        option, equals, _ = argument.partition("=")
        if equals and is_secret(option):
            shown.append(f"{option}={HIDDEN}")
        elif shown and shown[-1].startswith("-") and "=" not in shown[-1] and is_secret(shown[-1]):
            shown.append(HIDDEN)
        else:
            shown.append(argument)
    return shown


def git_state(folder: Path) -> dict[str, Any] | None:
    """Return commit, branch and whether tracked files differ from it; None outside a git checkout."""
    commit = _git(folder, "rev-parse", "HEAD")
    if commit is None:
        return None
    status = _git(folder, "status", "--porcelain", "--untracked-files=no")
    return {
        "commit": commit,
        "branch": _git(folder, "rev-parse", "--abbrev-ref", "HEAD"),
        "dirty": None if status is None else bool(status),
    }


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=5, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
