"""The report: one HTML file that opens anywhere, offline, with everything it needs inside."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2
from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup

from foreshock.batch import SLICES
from foreshock.diagnosis import Diagnosis
from foreshock.rules.aggregates import aggregate_sentence
from foreshock.rules.warm_up import settled_blocks, warm_up_steps
from foreshock.run import Run, merged_blocks
from foreshock.views import figures, multiples, tables, words

REPORT = "report.html"
REPORT_DRAFT = ".report.html.tmp"

MOST_POINTS = 200
"""Points of a line over blocks: of a longer run, neighbouring blocks are merged."""


def write_report(folder: Path, run: Run, diagnosis: Diagnosis) -> Path:
    """Write ``report.html`` into a folder, in one move, and return its path; a reader never sees half a file.

    Raises:
        OSError: the folder cannot be written to.
    """
    target, draft = Path(folder) / REPORT, Path(folder) / REPORT_DRAFT
    try:
        # A path may hold bytes that are not UTF-8; they are shown as escapes.
        draft.write_text(render_report(run, diagnosis), encoding="utf-8", errors="backslashreplace")
        os.replace(draft, target)
    finally:
        draft.unlink(missing_ok=True)
    return target


def render_report(run: Run, diagnosis: Diagnosis) -> str:
    """Return the report of a run as HTML. The same run and diagnosis give the same text, to the byte."""
    import plotly.offline

    pair, steps = run.pair, figures.steps_of(run, warm_up_steps(run), _marks(diagnosis))
    drawn = Run(run.path, run.identity, run.series, merged_blocks(run.blocks, MOST_POINTS))
    return (
        environment()
        .get_template("report.html.jinja")
        .render(
            run=run,
            diagnosis=diagnosis,
            title=_title(run),
            facts=_facts(run),
            aggregates=aggregate_sentence(diagnosis.aggregates, warm_up_steps(run)),
            pair=pair,
            tails=_tails(drawn, pair, steps) if pair else None,
            no_tails=_no_tails(run),
            notices=_other_notices(run, diagnosis),
            alpha=figures.alpha_panel(drawn.blocks, pair, steps) if run.blocks else None,
            scalars=multiples.aggregates_panel(run, diagnosis.aggregates, steps),
            spoken_of=multiples.findings_panel(run, diagnosis.findings, steps),
            aggregate_table=tables.aggregate_table(run, settled_blocks(drawn)),
            others=[_tails(drawn, other, steps) for other in run.pairs if other != pair],
            skipped=tables.skipped_counts(drawn, diagnosis),
            plotly_js=Markup(plotly.offline.get_plotlyjs()),
        )
    )


def _tails(run: Run, pair: str, steps: figures.Steps) -> dict[str, Any]:
    """Return all figures and the table of one pair of policies."""
    blocks = [block for block in run.blocks if pair in block.sketches]
    mergeable = tables.alike(blocks, pair)
    settled = tables.alike(settled_blocks(run), pair)
    user_slices = [name for name in mergeable[-1].sketches[pair].slices if name not in SLICES]
    left_out = len(blocks) - len(mergeable)
    return {
        "pair": pair,
        "over_steps": figures.tail_panel(blocks, pair, steps),
        "user": figures.user_tail_panel(mergeable, pair, steps, user_slices) if user_slices else None,
        "shares": figures.tail_share_panels(settled, pair),
        "ess": figures.ess_panel(blocks, pair, steps),
        "table": tables.slice_table(settled, pair, SLICES),
        "user_table": tables.slice_table(settled, pair, user_slices) if user_slices else None,
        "left_out": f"{left_out} blocks with other user slices are left out of this figure and of the tables."
        if left_out
        else "",
    }


def _no_tails(run: Run) -> str:
    """Say why a run without any pair has no tail figures."""
    if run.blocks:
        return "No block of this run holds a log-ratio, so there is no tail to draw. What is missing is said above."
    if run.series:
        return "This run holds only logged scalars and no per-token records, so there is no tail to draw."
    return "This run holds neither per-token records nor logged scalars yet: there is nothing to draw."


def _other_notices(run: Run, diagnosis: Diagnosis) -> dict[str, str]:
    """Return the notices of the watch that no finding and no gap repeats."""
    said = {finding.summary for finding in diagnosis.findings} | {gap.reason for gap in diagnosis.cannot_judge}
    return {code: notice for code, notice in run.notices.items() if notice not in said}


def _marks(diagnosis: Diagnosis) -> dict[int, str]:
    """Return the steps at which warnings were raised, with their labels; of several at one step the worst."""
    marks: dict[int, str] = {}
    for finding in diagnosis.findings:
        if finding.severity != "note":
            marks.setdefault(finding.steps[0], f"{finding.severity}, step {finding.steps[0]}")
    return marks


def _title(run: Run) -> str:
    return "this run" if run.path is None else str(run.path)


def _facts(run: Run) -> list[tuple[str, str]]:
    """Return the short facts under the title, as far as they are known."""
    model, environment = (_part(run.identity, name) for name in ("model", "environment"))
    packages, status = _part(environment, "packages"), run.identity.get("status")
    known = {
        "Steps": str(run.last_step),
        "Blocks": _block_count(len(run.blocks)),
        "Format": _part(run.identity, "source").get("format"),
        "Judged pair": run.pair,
        "Trainer": run.identity.get("trainer"),
        "Model": model.get("name") or model.get("class"),
        "Status": None if status == "running" else status,  # it still does when a watch writes its own report
        "Started": run.identity.get("started"),
        "Foreshock": packages.get("foreshock"),
    }
    return [(name, str(value)) for name, value in known.items() if value]


def _block_count(count: int) -> str:
    return f"{count:,}, drawn as {MOST_POINTS} points" if count > MOST_POINTS else str(count or "")


def _part(identity: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = identity.get(name)
    return value if isinstance(value, Mapping) else {}


@functools.cache
def environment(*loaders: jinja2.BaseLoader) -> jinja2.Environment:
    """Return what renders the templates of this package, and those of further loaders with the same filters."""
    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.PackageLoader("foreshock.views", "templates"), *loaders]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["shown"] = words.shown
    environment.filters["exact"] = words.exact
    environment.filters["figure_json"] = _figure_json
    environment.tests["a_mapping"] = lambda value: isinstance(value, Mapping)
    environment.globals["words"] = words
    return environment


def _figure_json(figure: Any) -> Markup:
    """Return a figure as JSON that is safe inside a script element."""
    content = figure.to_plotly_json()
    content["layout"].pop("template", None)  # the page sets the colours that the template would
    return htmlsafe_json_dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
