"""Columns of numbers: the rows of a log that have the same keys."""

from __future__ import annotations

from array import array

import numpy as np
import numpy.typing as npt

from foreshock.sources.keys import is_evaluation

Values = npt.NDArray[np.float64]


class Table:
    """The rows of one set of keys: a column a key, and the position of each row in the log."""

    def __init__(self, keys: tuple[str, ...]) -> None:
        self.keys = keys
        self.rows = array("Q")
        self.columns = [array("d") for _ in keys]
        self.pending = array("d")
        self.stride = 1
        self.seen = 0
        self.is_evaluation = is_evaluation(keys)
        self.is_summary = any(key.rpartition("/")[2] == "train_runtime" for key in keys)

    def flush(self) -> int:
        """Move the pending rows into the columns; return how many values these were."""
        count = len(self.pending)
        block = np.array(self.pending).reshape(-1, len(self.keys))
        for position, column in enumerate(self.columns):
            column.frombytes(block[:, position].tobytes())
        self.pending = array("d")
        return count

    def thin(self) -> int:
        """Leave out every second row; return how many values that freed."""
        before = len(self.rows)
        self.rows = self.rows[::2]
        self.columns = [column[::2] for column in self.columns]
        self.stride *= 2
        return (before - len(self.rows)) * len(self.keys)

    def column(self, key: str) -> Values:
        """Return the values of a key, shape ``(rows,)``, without a copy."""
        return np.frombuffer(self.columns[self.keys.index(key)], dtype=np.float64)
