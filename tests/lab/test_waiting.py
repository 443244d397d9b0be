from __future__ import annotations

import io

import pytest

pytest.importorskip("trl")

from rich.console import Console

from foreshock.lab.reference import TinyReference
from foreshock.lab.waiting import prepare_reference

TINY = TinyReference(steps=30, batch_size=2, hidden_size=16, layers=1, heads=2)


def test_a_pipe_is_told_ten_times_how_far_the_training_is_and_nothing_once_it_is_cached(tmp_path):
    said, silence = io.StringIO(), io.StringIO()
    folder = prepare_reference(TINY, tmp_path, Console(file=said))
    lines = said.getvalue().split("\n")[:-1]
    assert lines == [f"training the reference policy, step {step}/30" for step in range(3, 31, 3)]
    assert prepare_reference(TINY, tmp_path, Console(file=silence)) == folder
    assert not silence.getvalue()


def test_a_terminal_gets_a_bar(tmp_path):
    said = io.StringIO()
    prepare_reference(TINY, tmp_path, Console(file=said, force_terminal=True, width=100))
    assert "30/30" in said.getvalue()
