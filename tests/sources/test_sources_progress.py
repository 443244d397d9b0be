from __future__ import annotations

import io
import sys

import pytest

from foreshock.sources import progress


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
