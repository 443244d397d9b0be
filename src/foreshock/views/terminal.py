"""The terminal: short blocks on stderr while a run trains, and the whole diagnosis for ``foreshock diagnose``.

Nothing in here may end a training run: a terminal that is gone, a closed pipe or a narrow window only costs the text.
"""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from foreshock.causes import Cause
from foreshock.diagnosis import Diagnosis
from foreshock.rules.finding import CannotJudge, Finding
from foreshock.run import Run
from foreshock.views.rows import RowsTable
from foreshock.views.sparkline import Sparkline, sparklines
from foreshock.views.words import (
    change_words,
    excluded_sentence,
    headline,
    sentence,
    separations,
    shown,
    skipped_sentences,
    verdict_sentence,
    verdict_word,
)

STYLES = {
    "healthy": "bold green",
    "cannot_judge": "bold magenta",
    "note": "bold cyan",
    "warning": "bold yellow",
    "critical": "bold red",
    "cause": "bold",
}
LIVE_LINES = 9
"""Lines of a live finding under its headline."""

BAR_WIDTH = 2

WIDEST = 110
"""Columns beyond which lines of prose are no easier to read."""


def print_notices(notices: Mapping[str, str]) -> None:
    """Print to stderr what cannot be watched and what to set, one paragraph a notice."""
    for code, notice in notices.items():
        _print(Text(), _marked("note", Text.assemble((f"Foreshock · {code}", "bold"), f"  {notice}")))


def print_finding(finding: Finding) -> None:
    """Print a finding of a running training to stderr, in at most ten lines; the report holds the whole text."""
    _print(Text(), _short(finding, _console(_Page())))


def render_short(diagnosis: Diagnosis, console: Console) -> RenderableType:
    """Return the verdict and the findings of a running training, short enough for a screen that is redrawn."""
    worth = [finding for finding in diagnosis.findings if finding.severity != "note"]
    gaps = [Text(sentence(gap.reason)) for gap in diagnosis.cannot_judge] if not worth else []
    return Group(verdict_line(diagnosis), *[_short(finding, console) for finding in worth], *gaps)


def render_description(described: Mapping[str, Any]) -> RenderableType:
    """Return what ``foreshock.sources.describe`` says of a run: facts, keys with their origins, what was skipped."""
    facts = {**described, "steps": described["steps"] and "–".join(map(str, described["steps"]))}
    parts: list[RenderableType] = [
        labelled(name.replace("_", " "), shown(facts[name]))
        for name in ("path", "format", "rows", "blocks", "steps", "distinct_steps", "step_key")
        if facts[name] is not None
    ]
    keys = [
        {"key": key, "values": facts["values"], "read from": ", ".join(facts["from"])}
        for key, facts in described["keys"].items()
    ]
    if keys:
        parts += [Text(), RowsTable(keys), Text()]
    parts += [labelled(code, notice) for code, notice in described["notices"].items()]
    parts += [labelled("skipped", line) for line in skipped_sentences(described["skipped"])]
    return Group(*parts)


def _short(finding: Finding, console: Console) -> RenderableType:
    where = (f"step {finding.steps[0]}", finding.rule, finding.name, finding.slice)
    title = _titled(finding.severity, *filter(None, where))
    title.truncate(_width(console) - BAR_WIDTH, overflow="ellipsis")
    return _marked(finding.severity, Group(title, *_live_lines(finding, console)))


def print_verdict(diagnosis: Diagnosis, report: Path | None) -> None:
    """Print to stderr the verdict of a run that ended, and where the report lies."""
    lines: list[RenderableType] = [verdict_line(diagnosis), Text(verdict_sentence(diagnosis))]
    if diagnosis.causes:
        lines.append(_causes_line(diagnosis))
    if report is not None:
        lines.append(labelled("Report", str(report)))
    _print(Text(), _marked(diagnosis.verdict, Group(*lines)))


def _causes_line(diagnosis: Diagnosis) -> RenderableType:
    return labelled("Likeliest cause", "; then ".join(map(str, diagnosis.causes)))


def render_diagnosis(diagnosis: Diagnosis) -> RenderableType:
    """Return the whole diagnosis for a rich console: verdict, findings, what could not be judged, what was skipped."""
    parts: list[RenderableType] = [verdict_line(diagnosis), Text(verdict_sentence(diagnosis))]
    if diagnosis.causes:
        parts.append(_causes_line(diagnosis))
    for name, change in diagnosis.aggregates.items():
        parts.append(labelled(name, change_words(change) + (f": {change.reason}" if change.reason else "")))
    for finding in diagnosis.findings:
        parts += [Text(), _marked(finding.severity, _whole(finding, diagnosis.run))]
    for rank, (cause, separation) in enumerate(zip(diagnosis.causes, separations(diagnosis.causes), strict=True), 1):
        parts += [Text(), _marked("cause", _cause(rank, cause, separation))]
    if diagnosis.excluded:
        parts += [Text(), *[labelled("Excluded", excluded_sentence(cause)) for cause in diagnosis.excluded]]
    for gap in diagnosis.cannot_judge:
        parts += [Text(), _marked("cannot_judge", _gap(gap))]
    if diagnosis.judged:
        parts += [
            Text(),
            Text("Judged and in order", style="bold"),
            _indented(sentence("; ".join(diagnosis.judged)) + "."),
        ]
    skipped = skipped_sentences(diagnosis.skipped)
    if skipped:
        parts += [
            Text(),
            Text("Counted, not used", style="bold"),
            *[_indented(line) for line in skipped],
        ]
    return Group(*parts)


def _whole(finding: Finding, run: Run | None) -> RenderableType:
    parts: list[RenderableType] = [_titled(finding.severity, headline(finding)), Text(finding.summary)]
    lines = sparklines(finding, run) if run is not None else []
    if lines:
        parts += [Text(), _Sparklines(lines)]
    for rows in filter(None, (finding.evidence, finding.tokens)):
        parts += [Text(), RowsTable(rows)]
    if finding.evidence:
        parts.append(Text())
    parts += [
        labelled(name, text)
        for name, text in (
            ("How sure", finding.certainty),
            ("Likely cause", finding.cause),
            ("Excludes", " ".join(finding.exclusions)),
            ("Advice", finding.advice),
            ("Next check", finding.next_check),
        )
        if text
    ]
    return Group(*parts)


class _Sparklines:
    """Lines of bars with the level of the first and the last one; nothing where the output has no such characters."""

    def __init__(self, lines: Sequence[Sparkline]) -> None:
        self.lines = lines

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if options.ascii_only:
            return
        grid = Table.grid(padding=(0, 2, 0, 0))
        for line in self.lines:
            levels = f"{shown(line.first)} → {shown(line.last)}"
            grid.add_row(Text(line.label, "dim"), Text(line.picture, no_wrap=True), Text(levels, no_wrap=True))
        yield grid


def _cause(rank: int, cause: Cause, separation: str) -> RenderableType:
    fields = [("For", line) for line in cause.evidence_for] + [("Against", line) for line in cause.evidence_against]
    if separation:
        fields.append(("Separate", separation))
    title = Text.assemble((f"CAUSE {rank}", STYLES["cause"]), f" · {cause}")
    return Group(title, *[labelled(name, line) for name, line in fields])


def _indented(line: str) -> Padding:
    return Padding(Text(line), (0, 0, 0, 2))


def _gap(gap: CannotJudge) -> RenderableType:
    lines = [Text(line) for line in (sentence(gap.reason), gap.remedy) if line]
    return Group(_titled("cannot_judge", gap.rule), *lines)


def labelled(name: str, text: str) -> Table:
    """Return a short name and beside it a text that may take several lines."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", width=15)
    grid.add_column(overflow="fold")
    grid.add_row(Text(name), Text(text))
    return grid


def _titled(severity: str, *parts: str) -> Text:
    return Text.assemble((severity.replace("_", " ").upper(), STYLES[severity]), *[f" · {part}" for part in parts])


def verdict_line(diagnosis: Diagnosis) -> Text:
    """Return the verdict of a run and its path."""
    where = "" if diagnosis.path is None else f"  {diagnosis.path}"
    return Text.assemble((verdict_word(diagnosis).upper(), STYLES[diagnosis.verdict]), where)


def _live_lines(finding: Finding, console: Console) -> list[Text]:
    """Wrap the parts of a finding into at most :data:`LIVE_LINES` lines; what does not fit ends in an ellipsis."""
    width = _width(console) - BAR_WIDTH
    texts = {
        "summary": Text(finding.summary),
        "exclusions": Text(" ".join(finding.exclusions)),
        "advice": Text.assemble(("Do: ", "bold"), finding.advice) if finding.advice else Text(),
        "next check": Text.assemble(("Check: ", "bold"), finding.next_check) if finding.next_check else Text(),
    }
    wrapped = {name: list(text.wrap(console, width)) if text else [] for name, text in texts.items()}
    left = LIVE_LINES
    room = {}
    for name, most in {"summary": 4, "exclusions": 2, "advice": 2, "next check": 2}.items():  # what matters most first
        room[name] = min(len(wrapped[name]), most, left)
        left -= room[name]
    return [line for name in texts for line in _cut(wrapped[name], room[name], width)]


def _cut(lines: list[Text], room: int, width: int) -> list[Text]:
    kept = lines[:room]
    if kept and room < len(lines):
        kept[-1].rstrip()
        kept[-1].append(" …")
        kept[-1].truncate(width, overflow="ellipsis")
    return kept


class _Marked:
    """Something with a coloured bar at its left."""

    def __init__(self, style: str, content: RenderableType) -> None:
        self.style = style
        self.content = content

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        bar = Segment("| " if options.ascii_only else "▌ ", console.get_style(self.style))
        inside = options.update_width(max(options.max_width - BAR_WIDTH, 1))
        for line in console.render_lines(self.content, inside, pad=False):
            yield bar
            yield from line
            yield Segment.line()


def _marked(severity: str, content: RenderableType) -> RenderableType:
    return _Marked(STYLES[severity], content)


class _Page(io.StringIO):
    """Collects text as stderr would show it: in its encoding, and with colours exactly when it is a terminal.

    A rich console must not write to stderr itself, because it ends the process when the other side of a pipe is gone.
    """

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return getattr(sys.stderr, "encoding", None) or "utf-8"

    def isatty(self) -> bool:
        try:
            return sys.stderr.isatty()
        except (AttributeError, ValueError):  # there is no stderr, or it is closed
            return False


def _console(page: _Page) -> Console:
    return Console(file=page, highlight=False, force_jupyter=False)


def _width(console: Console) -> int:
    return max(min(console.width, WIDEST), BAR_WIDTH + 1)


def _print(*parts: RenderableType) -> None:
    """Print to stderr, whatever state it is in."""
    page = _Page()
    console = _console(page)
    for part in parts:
        console.print(part, width=_width(console))
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(page.getvalue())
        sys.stderr.flush()
