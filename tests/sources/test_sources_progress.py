from __future__ import annotations

import io
import re
import sys
from collections import Counter
from pathlib import Path

import pytest

from foreshock.sources import compressed, progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("patience", [-1.0, 60.0])
def test_every_item_comes_once_and_in_order(monkeypatch: pytest.MonkeyPatch, patience: float) -> None:
    monkeypatch.setattr(progress, "PATIENCE", patience)
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert list(progress.tracked(iter(range(5)), 5, "files")) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(("kind", "is_shown"), [(Terminal, True), (io.StringIO, False)])
def test_only_a_terminal_is_shown_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, kind: type[io.StringIO], is_shown: bool
) -> None:
    monkeypatch.setattr(progress, "PATIENCE", -1.0)
    monkeypatch.setattr(sys, "stderr", kind())
    monkeypatch.setenv("TERM", "xterm")
    list(progress.tracked(range(3), 3, "files"))
    assert ("3/3" in sys.stderr.getvalue()) == is_shown


def test_a_file_that_takes_long_is_shown_but_not_inside_a_list_that_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    log = tmp_path / "long.jsonl"
    log.write_bytes(b"x" * 2**18 * 3)
    monkeypatch.setattr(progress, "PATIENCE", -1.0)
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    assert sum(map(len, compressed.raw_chunks(log, Counter()))) == 2**18 * 3
    assert re.search("3/3[^ ]* pieces of long.jsonl", sys.stderr.getvalue())
    assert "4/3" not in sys.stderr.getvalue()
    for number in progress.tracked(range(3), 3, "runs"):
        before = sys.stderr.getvalue().count("pieces")
        list(compressed.raw_chunks(log, Counter()))
        assert (sys.stderr.getvalue().count("pieces") > before) == (number == 0)  # the list is shown after its first
