"""The page of the reproduction, and its tables as Markdown and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import jinja2
import msgspec
import plotly.offline
from markupsafe import Markup

from foreshock.lab import tables
from foreshock.lab.arms import ARMS
from foreshock.lab.curves import Figure
from foreshock.lab.draw import plotly_figure
from foreshock.lab.results import PARTS, RunResult, by_arm
from foreshock.views.figures import Panel
from foreshock.views.report import environment

PAGE, TABLES, RESULTS = "index.html", "tables.md", "results.json"

INTRODUCTION = (
    "A tool-using policy, trained by TRL's GRPOTrainer and watched by foreshock.watch; every number and figure comes "
    "from the run directories. The task is a toy, and its curriculum is exogenous: the share of tool keys that "
    "redirect rises on a schedule of its own."
)


def write(results: Sequence[RunResult], figures: Sequence[Figure], folder: Path) -> Path:
    """Write ``index.html``, ``tables.md`` and ``results.json`` into a folder and return the path of the page."""
    checks, runs, parts = tables.check_rows(results), tables.run_rows(results), tables.part_rows(results)
    sections = {"What it must show": checks, "Every run": runs, "Early, middle and late": parts}
    (folder / TABLES).write_text(
        "\n".join(f"## {title}\n\n{tables.markdown(rows)}" for title, rows in sections.items()), encoding="utf-8"
    )
    content = msgspec.json.encode({"schema": 1, "checks": checks, "runs": runs, "parts": parts})
    (folder / RESULTS).write_bytes(msgspec.json.format(content, indent=2) + b"\n")
    page = environment(jinja2.PackageLoader("foreshock.lab", "templates")).get_template("reproduction.html.jinja")
    (folder / PAGE).write_text(
        page.render(
            runs=len(results),
            introduction=INTRODUCTION,
            arms={arm: ARMS[arm].description for arm in by_arm(results) if arm in ARMS},
            checks=checks,
            run_rows=runs,
            part_rows=parts,
            parts_words=_parts_words(results),
            panels=[Panel(figure.title, figure.caption, plotly_figure(figure)) for figure in figures],
            plotly_js=Markup(plotly.offline.get_plotlyjs()),
        ),
        encoding="utf-8",
    )
    return folder / PAGE


def _parts_words(results: Sequence[RunResult]) -> str:
    judged = next((result for result in results if result.parts), None)
    if judged is None:
        return "The runs are too short to have parts after the burn-in."
    steps = ", ".join("{} {}–{}".format(part, *judged.steps_of(part)) for part in PARTS)
    return (
        f"Steps: {steps}; burn-in until {judged.burn_in}. Means over seeds with 95 % percentile bootstrap intervals, "
        "which are too narrow for so few seeds."
    )
