from __future__ import annotations

import contextlib
import io
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from foreshock.detect.series_change import Change
from foreshock.rules.finding import Finding
from foreshock.views import terminal

NOTICE = {
    "no-comparator": "beta is 0 and the model has no adapter [to switch off], so there is no reference to compare with."
}
CHANGES = {
    "loss": Change(False, None, 1.0, 0.1),
    "mean KL": Change(True, 90, 3.0, 4.0),
    "reward": Change(False, None, float("nan"), float("nan"), "only 3 values follow the baseline, 20 are needed"),
}


@pytest.fixture(params=[60, 100])
def width(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setenv("COLUMNS", str(request.param))
    monkeypatch.setenv("NO_COLOR", "1")
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    return int(request.param)


def stripped(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.splitlines())


def test_live_output(width, capsys, make_finding, make_diagnosis, snapshot) -> None:
    terminal.print_notices(NOTICE)
    terminal.print_finding(make_finding())
    terminal.print_verdict(make_diagnosis(), report=Path("runs/a/report.html"))
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "\x1b" not in captured.err
    assert all(cell_len(line) <= width for line in captured.err.splitlines())
    assert stripped(captured.err) == snapshot


def test_whole_diagnosis(width, make_diagnosis, snapshot) -> None:
    stream = io.StringIO()
    Console(file=stream, width=width).print(terminal.render_diagnosis(make_diagnosis(aggregates=CHANGES)))
    assert "\x1b" not in stream.getvalue()
    assert all(cell_len(line) <= width for line in stream.getvalue().splitlines())
    assert stripped(stream.getvalue()) == snapshot


def test_healthy_and_unjudged_runs(width, make_diagnosis, capsys, snapshot) -> None:
    for verdict, gaps in (("healthy", ()), ("cannot_judge", make_diagnosis().cannot_judge)):
        diagnosis = make_diagnosis(verdict=verdict, findings=(), cannot_judge=gaps, skipped={}, path=None)
        diagnosis = replace(diagnosis, causes=(), excluded=(), judged=() if gaps else diagnosis.judged)
        terminal.print_verdict(diagnosis, report=None)
        Console(file=sys.stderr, width=width).print(terminal.render_diagnosis(diagnosis))
    assert stripped(capsys.readouterr().err) == snapshot


def test_no_notices_print_nothing(capsys) -> None:
    terminal.print_notices({})
    assert capsys.readouterr().err == ""


WORDS = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), max_size=20)
PROSE = st.lists(WORDS, max_size=80).map(" ".join)


@given(texts=st.tuples(PROSE, PROSE, PROSE, PROSE), columns=st.integers(8, 200))
def test_a_live_finding_never_takes_more_than_ten_lines(texts: tuple[str, ...], columns: int) -> None:
    finding = Finding("rule", "warning", texts[0], (1, 2), "post_tool", (), "", (texts[1],), texts[2], texts[3])
    stream = io.StringIO()
    with contextlib.redirect_stderr(stream), pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", str(columns))
        patch.setenv("NO_COLOR", "1")
        terminal.print_finding(finding)
    assert len(stream.getvalue().split("\n")) - 1 <= 10


def test_a_closed_pipe_costs_only_the_text(monkeypatch, make_finding, make_diagnosis) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    stream = os.fdopen(writer, "w")
    monkeypatch.setattr(sys, "stderr", stream)
    terminal.print_notices(NOTICE)
    terminal.print_finding(make_finding())
    terminal.print_verdict(make_diagnosis(), report=None)
    with contextlib.suppress(OSError):
        stream.close()
    terminal.print_finding(make_finding())  # a stream that is closed altogether


def test_an_encoding_without_these_letters_gets_escapes(monkeypatch, make_finding) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(raw, encoding="ascii", errors="backslashreplace"))
    terminal.print_finding(make_finding())
    assert b"\n| CRITICAL" in raw.getvalue()


def test_brackets_in_a_message_are_not_markup(monkeypatch, capsys, make_finding) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    terminal.print_finding(make_finding(summary="tensor [red]x[/red] of [B, T]"))
    assert "tensor [red]x[/red] of [B, T]" in capsys.readouterr().err
