"""Runs: series, blocks and the run directory."""

from __future__ import annotations

from foreshock.run.block import Block, EncodedSketches, TopToken, merge_pair, merged_blocks, segments
from foreshock.run.directory import RunWriter, prepare_directory, utc_now
from foreshock.run.model import Run
from foreshock.run.reader import RunReader, read_findings, read_run_directory
from foreshock.run.series import LATEST_ROWS, Series
from foreshock.run.stored import StoredBlocks

__all__ = [
    "LATEST_ROWS",
    "Block",
    "EncodedSketches",
    "Run",
    "RunReader",
    "RunWriter",
    "Series",
    "StoredBlocks",
    "TopToken",
    "merge_pair",
    "merged_blocks",
    "prepare_directory",
    "read_findings",
    "read_run_directory",
    "segments",
    "utc_now",
]
