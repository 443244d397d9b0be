from __future__ import annotations

import io

import pytest

pytest.importorskip("trl")

from rich.console import Console

from foreshock.errors import InputError
from foreshock.lab import sweep
from foreshock.lab.plan import RunPlan
from foreshock.run import read_run_directory


def test_a_sweep_goes_seed_by_seed_through_the_arms(tmp_path):
    planned = sweep.plans("tiny", ["fixed", "constrained"], [0, 3], None, tmp_path)
    assert [plan.name for plan in planned] == ["fixed-0", "constrained-0", "fixed-3", "constrained-3"]
    assert {plan.steps for plan in planned} == {210}
    assert len({plan.run_dir for plan in planned}) == 4


def test_an_unknown_arm_is_named_with_the_known_ones(tmp_path):
    with pytest.raises(InputError, match=r"'free'.*fixed, drift_aware, constrained"):
        sweep.plans("tiny", ["free"], [0], None, tmp_path)
    with pytest.raises(InputError, match="smollm2: got 'refresh'"):
        sweep.plans("smollm2", ["refresh"], [0], None, tmp_path)


def test_only_a_whole_run_is_finished_and_one_of_another_length_is_refused(tmp_path, write_run):
    finished, killed, missing = (
        RunPlan("tiny", "fixed", seed, 12, tmp_path / str(seed), tmp_path) for seed in range(3)
    )
    write_run(finished)
    write_run(killed, status="running")
    assert [sweep.is_finished(plan) for plan in (finished, killed, missing)] == [True, False, False]
    longer = RunPlan("tiny", "fixed", 0, 24, finished.run_dir, tmp_path)
    with pytest.raises(InputError, match=r"12 steps, and 24 were asked for"):
        sweep.is_finished(longer)


def test_the_estimate_shares_the_work_between_jobs(tmp_path):
    planned = sweep.plans("tiny", ["fixed"], [0, 1, 2, 3], 100, tmp_path)
    alone = sweep.estimate_minutes(planned, 1)
    assert sweep.estimate_minutes(planned, 4) == pytest.approx(alone / 4)
    assert sweep.estimate_minutes(planned[:1], 4) == pytest.approx(alone / 4)


@pytest.mark.slow
def test_runs_in_processes_of_their_own_are_the_same_to_the_bit_and_a_failure_stays_alone(tmp_path, cache):
    first, again = (RunPlan("tiny", "fixed", 0, 2, tmp_path / "runs" / name, cache) for name in "ab")
    (tmp_path / "file").write_text("")
    broken = RunPlan("tiny", "constrained", 0, 2, tmp_path / "runs" / "c", tmp_path / "file")
    (first.run_dir / "left").mkdir(parents=True)  # of a run that was killed
    said = io.StringIO()
    failed = sweep.run_all([first, broken, again], 2, Console(file=said))
    assert failed == [tmp_path / "logs" / "constrained-0.log"]
    assert "Error" in failed[0].read_text()
    assert "fixed-0 finished" in said.getvalue()
    assert "constrained-0 failed" in said.getvalue()
    assert not (first.run_dir / "left").exists()
    runs = [read_run_directory(plan.run_dir) for plan in (first, again)]
    assert runs[0].identity["status"] == "finished"
    assert runs[0].blocks[0].sketches["policy/ref"] == runs[1].blocks[0].sketches["policy/ref"]
    for key in ("loss", "reward", "kl", "grad_norm"):
        assert runs[0].series[key].values.tolist() == runs[1].series[key].values.tolist()
