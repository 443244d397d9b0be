from __future__ import annotations

import hashlib
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from foreshock.diagnosis import diagnose_run
from foreshock.run import Block, Run
from foreshock.sketch import LogRatioSketch
from foreshock.views import report

HOSTILE = "<script>alert(1)</script>\"'&"


class Reader(HTMLParser):
    """Collects the visible text, every address that a browser would load, and the figures of a report."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.figures: list[dict] = []
        self.text = ""
        self._inside: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "data", "action")]
        if tag not in ("meta", "link", "br"):
            self._inside.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._inside.pop()[0] == tag, "the page is not well nested"

    def handle_data(self, data: str) -> None:
        tag, attributes = self._inside[-1] if self._inside else ("", {})
        if attributes.get("type") == "application/json":
            self.figures.append(json.loads(data))
        elif tag not in ("script", "style"):
            self.text += data

    @property
    def words(self) -> str:
        return " ".join(self.text.split())


def rendered(run: Run) -> Reader:
    return Reader(report.render_report(run, diagnose_run(run)))


def without_scripts(page: str) -> str:
    return re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)


def test_a_report_shows_verdict_findings_figures_tables_and_gaps(make_run, make_diagnosis) -> None:
    run = make_run(15)
    diagnosis = make_diagnosis(aggregates=diagnose_run(run).aggregates)
    page = Reader(report.render_report(run, diagnosis))
    for finding in diagnosis.findings:
        for text in (finding.summary, finding.cause, *finding.exclusions, finding.advice, finding.next_check):
            assert text in page.words
    assert f"From engine mismatch: {diagnosis.causes[0].separating_check}" in page.words
    assert "engine mismatch (drift)" in page.words
    assert "Judged and in order No KL runaway (kl) All values are finite (loss, reward)" in page.words
    assert "Not optimiser instability. grad_norm is flat" in page.words
    assert "No rollout log-probabilities were recorded. Set use_vllm=True." in page.words
    assert "torn or damaged lines in blocks.jsonl: 2" in page.words
    assert "Early, middle and late" in page.words
    assert len(page.figures) == 6
    marks = [shape["x0"] for shape in page.figures[0]["layout"]["shapes"] if shape["type"] == "line"]
    assert marks == [110]


def test_a_report_asks_the_network_for_nothing(make_run) -> None:
    run = make_run(6)
    page = report.render_report(run, diagnose_run(run))
    assert Reader(page).addresses == ["data:,"]
    assert "Content-Security-Policy\" content=\"default-src 'none'" in page
    assert not re.search(r"https?://|@import|url\(", without_scripts(page))
    assert page.count("plotly.js v") >= 1
    assert len(page) - len(without_scripts(page)) > 1_000_000, "plotly.js is not inside"


DEGENERATE: dict[str, tuple[Callable[..., Run], str]] = {
    "only scalars": (lambda make: make(0, steps=40, scalars=("loss",)), "only logged scalars and no per-token records"),
    "nothing": (lambda make: make(0, path=None), "there is nothing to draw"),
    "one block": (lambda make: make(1), "Fewer than three blocks: one curve for the whole run."),
    "no post-tool tokens": (lambda make: make(6, filled=("text_only",)), "to draw: no token in slice post_tool."),
    "no text-only tokens": (lambda make: make(6, filled=("post_tool",)), "to draw: no token in slice text_only."),
    "no tokens at all": (lambda make: empty_blocks(), "no token in slice text_only"),
    "no reward": (lambda make: make(6, scalars=("loss", "kl")), "Not logged: reward, entropy."),
    "no comparator": (lambda make: Run(blocks=[Block(0, 1, 10, {})]), "No block of this run holds a log-ratio"),
    "scalars that are all NaN": (lambda make: only_nan(), "5 of 5 not finite"),
    "several pairs": (lambda make: make(6, pairs=("policy/ref", "policy/old")), "Other pairs"),
    "user slices": (lambda make: make(6, slices=("text_only", "post_tool", "search")), "Tail in your own slices"),
}  # fmt: skip


def empty_blocks() -> Run:
    return Run(blocks=[Block(index, index + 1, index + 1, {"policy/ref": LogRatioSketch()}) for index in range(4)])


def only_nan() -> Run:
    run = Run()
    for step in range(1, 6):
        run.append_scalars(step, {"loss": math.nan, "reward": "inf"})
    return run


@pytest.mark.parametrize("name", DEGENERATE)
def test_a_degenerate_run_says_plainly_what_is_missing(name: str, make_run) -> None:
    build, sentence = DEGENERATE[name]
    page = rendered(build(make_run))
    assert sentence in page.words + json.dumps(page.figures, ensure_ascii=False)


def test_a_resume_with_other_slices_is_drawn_and_what_cannot_be_merged_is_said(make_run) -> None:
    run = make_run(5)
    later = make_run(4, slices=("text_only", "post_tool", "search")).blocks
    run.blocks += [replace(block, first_step=block.first_step + 50, last_step=block.last_step + 50) for block in later]
    page = rendered(run)
    assert len(page.figures[0]["data"][0]["x"]) == 9
    assert "5 blocks with other user slices are left out" in page.words
    assert "text_only early51–60" in page.words


def test_the_judged_pair_is_drawn_first_and_other_pairs_are_folded(make_run) -> None:
    run = make_run(4, pairs=("policy/old", "policy/ref"))
    page = report.render_report(run, diagnose_run(run))
    assert (
        page.index("log π_policy − log π_ref")
        < page.index("<summary>policy/old")
        < page.index("log π_policy − log π_old")
    )


def test_hostile_names_stay_text(make_run, make_finding) -> None:
    run = make_run(4, slices=("text_only", "post_tool", HOSTILE), pairs=("policy/ref",), path=Path(HOSTILE))
    run.identity = {"model": {"name": HOSTILE, HOSTILE: {HOSTILE: [HOSTILE]}}, "trainer": HOSTILE, HOSTILE: None}
    run.notices = {HOSTILE: HOSTILE}
    finding = make_finding(summary=HOSTILE, evidence=({HOSTILE: HOSTILE},), advice=HOSTILE, rule=HOSTILE)
    page = report.render_report(run, replace(diagnose_run(run), findings=(finding,), skipped={HOSTILE: 1}))
    assert "<script>alert" not in page
    assert HOSTILE in Reader(page).text


def test_identity_is_shown_with_the_configuration_folded(make_run) -> None:
    run = make_run(1)
    run.identity = {
        "model": {"name": "Qwen3-0.6B", "adapters": {}},
        "config": {"beta": 0.04, "learning_rate": 0.00012345},
        "tokenizer": None,
    }
    page = rendered(run)
    assert "config beta 0.04 learning_rate 0.00012345" in page.words
    assert "ModelQwen3-0.6B" in page.words
    assert "adapters –" in page.words


def test_the_same_run_gives_the_same_bytes_in_every_process() -> None:
    program = (
        "import sys, hashlib; sys.path.insert(0, sys.argv[1])\n"
        "from conftest import build_run\n"
        "from foreshock.diagnosis import diagnose_run\n"
        "from foreshock.views.report import render_report\n"
        "run = build_run(4, pairs=('policy/ref', 'policy/old'))\n"
        "print(hashlib.sha256(render_report(run, diagnose_run(run)).encode()).hexdigest())\n"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", program, str(Path(__file__).parent)],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1")
    }
    assert len(digests) == 1


def test_the_file_is_replaced_in_one_move(tmp_path: Path, make_run) -> None:
    run = make_run(2)
    diagnosis = diagnose_run(run)
    path = report.write_report(tmp_path, run, diagnosis)
    assert path == tmp_path / "report.html"
    before = hashlib.sha256(path.read_bytes()).hexdigest()
    with pytest.raises(KeyError):
        report.write_report(tmp_path, run, replace(diagnosis, verdict="no such verdict"))
    assert hashlib.sha256(path.read_bytes()).hexdigest() == before
    assert [item.name for item in tmp_path.iterdir()] == ["report.html"]


def test_a_path_that_is_not_unicode_is_written_with_escapes(tmp_path: Path, make_run) -> None:
    run = make_run(1, path=Path("runs/\udcff"))
    assert "\\udcff" in report.write_report(tmp_path, run, diagnose_run(run)).read_text("utf-8")
