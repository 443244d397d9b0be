from __future__ import annotations

import tarfile

import pytest

from foreshock.lab.plan import RunPlan
from foreshock.lab.saved import save, unpack
from foreshock.run import read_run_directory


@pytest.fixture
def run_dir(tmp_path, write_run):
    plan = RunPlan("tiny", "fixed", 0, 24, tmp_path / "fixed-0", tmp_path)
    write_run(plan)
    (plan.run_dir / "report.html").write_text("large")
    return plan.run_dir


def test_an_archive_holds_the_whole_run_and_no_report(run_dir, tmp_path):
    save(run_dir, tmp_path / "a.tar.gz")
    saved, run = read_run_directory(unpack(tmp_path / "a.tar.gz", tmp_path)), read_run_directory(run_dir)
    assert [block.sketches["policy/ref"] for block in saved.blocks] == [
        block.sketches["policy/ref"] for block in run.blocks
    ]
    assert saved.series["reward"].values.tolist() == run.series["reward"].values.tolist()
    assert saved.planned_steps == 24
    assert not saved.skipped
    with tarfile.open(tmp_path / "a.tar.gz") as archive:
        assert archive.getnames() == ["a/run.json", "a/metrics.jsonl", "a/blocks.jsonl"]


def test_the_same_run_gives_the_same_bytes(run_dir, tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        save(run_dir, tmp_path / name / "fixed-0.tar.gz")
    assert (tmp_path / "a" / "fixed-0.tar.gz").read_bytes() == (tmp_path / "b" / "fixed-0.tar.gz").read_bytes()
