"""Token dumps: files in which a trainer kept the tokens, masks and log-probabilities of its rollouts.

Each format has a reader of its own, which yields batches of completions. Every file becomes a summary of fixed size
(the map), and summaries are added up to blocks of ten steps (the reduce), so that a dump of any size becomes a run.
"""

from __future__ import annotations

from foreshock.sources.dumps.collect import check_is_new, collect, read, write
from foreshock.sources.dumps.engine import ENGINES
from foreshock.sources.dumps.formats import Dump, find, is_folder_of, looks_like, open_dump

__all__ = [
    "ENGINES",
    "Dump",
    "check_is_new",
    "collect",
    "find",
    "is_folder_of",
    "looks_like",
    "open_dump",
    "read",
    "write",
]
