"""Every error that Foreshock raises on purpose.

    ForeshockError
    ├── InputError            a value that the caller passed cannot be used (also a ValueError)
    │   ├── LayoutError       two sketches, or a sketch and its data, do not have the same layout
    │   └── RuleError         a rule that the user gave or named cannot be used
    ├── UnsupportedTrainer    the trainer is of a class that no adapter knows (also a TypeError)
    ├── AlreadyWatched        the trainer has a watch already
    ├── RunDirectoryError     the run directory cannot be used (also an OSError)
    ├── ReadError             a file or folder cannot be read as a run
    │   └── CorruptRecord     one record fails its checksum or cannot be decoded
    ├── RunFailed             a training run of the reproduction ended with an error
    └── MissingExtra          an optional package is needed; the message holds the pip line (also an ImportError)

Each message says what was wrong, what was given, what was expected, and what to do.
"""

from __future__ import annotations


class ForeshockError(Exception):
    """Base of all errors that Foreshock raises on purpose."""


class InputError(ForeshockError, ValueError):
    """A value that the caller passed cannot be used."""


class LayoutError(InputError):
    """Two sketches, or a sketch and its data, do not have the same layout."""


class RuleError(InputError):
    """A rule that the user gave or named cannot be used."""


class UnsupportedTrainer(ForeshockError, TypeError):
    """The trainer is of a class that no adapter knows."""


class AlreadyWatched(ForeshockError):
    """The trainer has a watch already."""


class RunDirectoryError(ForeshockError, OSError):
    """The run directory cannot be used."""


class ReadError(ForeshockError):
    """A file or folder cannot be read as a run."""


class CorruptRecord(ReadError):
    """One record fails its checksum or cannot be decoded."""


class RunFailed(ForeshockError):
    """A training run of the reproduction ended with an error."""


class MissingExtra(ForeshockError, ImportError):
    """An optional package is needed that is not installed."""

    def __init__(self, feature: str, packages: str) -> None:
        """Name what needs the packages and the arguments of pip that bring them."""
        super().__init__(f"{feature} needs packages that are not installed. Install them with: pip install {packages}")
