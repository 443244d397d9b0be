from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import rollout_dumps as dumps
from click.testing import CliRunner

from foreshock.cli import main
from foreshock.errors import InputError, MissingExtra, ReadError
from foreshock.sketch import filling
from foreshock.sources import describe, open_run
from foreshock.sources import dumps as token_dumps
from foreshock.sources.dumps import engine


def test_a_collected_run_is_the_one_that_is_read_from_the_dump(tmp_path: Path) -> None:
    dump = dumps.prime_rl(tmp_path / "dump", [dumps.rollouts(step) for step in range(25)])
    result = CliRunner().invoke(main, ["collect", str(dump), "--output", str(tmp_path / "run")])
    assert result.exit_code == 0, result.output
    assert result.output.strip() == f"{tmp_path / 'run'}: 3 blocks, up to step 24"
    collected, direct = open_run(tmp_path / "run"), open_run(dump)
    assert [block.to_record() for block in collected.blocks] == [block.to_record() for block in direct.blocks]
    assert collected.series.keys() == direct.series.keys()
    for key, series in direct.series.items():
        assert np.array_equal(collected.series[key].values, series.values)
    assert describe(collected)["format"] == "prime-rl token export"


def test_what_was_not_used_is_noted_in_the_run_directory(tmp_path: Path) -> None:
    run = open_run(dumps.slime(tmp_path / "dump", [dumps.rollouts(0)]))
    token_dumps.write(run, tmp_path / "run")
    assert "repeat the samples of another worker: 1" in open_run(tmp_path / "run").notices["skipped"]


def test_a_folder_with_a_run_is_not_written_to(tmp_path: Path) -> None:
    dump = dumps.nemo_rl(tmp_path / "dump", [dumps.rollouts(0)])
    arguments = ["collect", str(dump), "--output", str(tmp_path / "run")]
    assert CliRunner().invoke(main, arguments).exit_code == 0
    before = (tmp_path / "run" / "blocks.jsonl").read_bytes()
    again = CliRunner().invoke(main, arguments)
    assert again.exit_code == 2
    assert "holds a run already" in again.output
    assert (tmp_path / "run" / "blocks.jsonl").read_bytes() == before


def test_steps_that_are_not_in_the_dump_are_noted(tmp_path: Path) -> None:
    folder = dumps.nemo_rl(tmp_path, [dumps.rollouts(step) for step in range(12)])
    for step in (3, 4):
        (folder / f"train_data_step{step}.jsonl").unlink()
    run = open_run(folder)
    assert "Of the steps 1 to 12, 2 are not in the dump" in run.notices["missing_steps"]
    assert run.blocks[0].counters["rows"] == (8.0, 8.0, 0.0, 0.0, *[8.0] * 6)


def test_the_tail_that_grows_after_tool_results_is_found_from_a_dump(tmp_path: Path) -> None:
    steps = [dumps.rollouts(step, count=12, post_tool_tail=0.02 * 1.03 ** max(step - 120, 0)) for step in range(220)]
    dump = dumps.prime_rl(tmp_path / "dump", steps, ranks=1)
    result = CliRunner().invoke(main, ["diagnose", str(dump), "--json"])
    (run,) = json.loads(result.output)["runs"]
    assert "post-tool-tail-growth" in [finding["rule"] for finding in run["findings"]]
    assert result.exit_code == 1


def test_local_processes_and_one_process_give_the_same_bits(tmp_path: Path) -> None:
    dump = token_dumps.open_dump(dumps.prime_rl(tmp_path, [dumps.rollouts(step) for step in range(12)]))
    one, two = token_dumps.collect(dump), token_dumps.collect(dump, workers=2)
    assert [block.to_record() for block in one.blocks] == [block.to_record() for block in two.blocks]


@pytest.fixture
def worth_compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any dump counts as large; NumPy counts again after the test."""
    monkeypatch.setattr(engine, "WORTH_COMPILING", 0)
    monkeypatch.setattr(filling, "_compiled", None)


@pytest.mark.usefixtures("worth_compiling")
def test_compiled_code_counts_a_large_dump(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dump = token_dumps.open_dump(dumps.prime_rl(tmp_path, [dumps.rollouts(step) for step in range(12)]))
    with monkeypatch.context() as small:
        small.setattr(engine, "WORTH_COMPILING", 1 << 30)
        plain = token_dumps.collect(dump)
    assert filling._compiled is None
    one, two = token_dumps.collect(dump), token_dumps.collect(dump, workers=2)
    assert filling._compiled is not None
    assert [block.to_record() for block in one.blocks] == [block.to_record() for block in two.blocks]
    for block, same in zip(one.blocks, plain.blocks, strict=True):
        for pair, sketch in block.sketches.items():
            assert np.array_equal(sketch.counts, same.sketches[pair].counts)
    assert "not_compiled" not in one.notices


@pytest.mark.usefixtures("worth_compiling")
def test_a_large_dump_is_read_without_compiled_code_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "foreshock.sketch.compiled", None)
    run = token_dumps.read(dumps.nemo_rl(tmp_path, [dumps.rollouts(0)]))
    assert len(run.blocks) == 1
    assert "pip install 'foreshock[fast]'" in run.notices["not_compiled"]


@pytest.mark.slow
def test_ray_and_one_process_write_the_same_bytes(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    dump = token_dumps.open_dump(dumps.prime_rl(tmp_path / "dump", [dumps.rollouts(step) for step in range(25)]))
    token_dumps.write(token_dumps.collect(dump), tmp_path / "local")
    token_dumps.write(token_dumps.collect(dump, engine="ray", workers=2), tmp_path / "ray")
    blocks = [(tmp_path / engine / "blocks.jsonl").read_bytes() for engine in ("local", "ray")]
    assert blocks[0] == blocks[1]
    assert len(blocks[0].splitlines()) == 3


def test_without_ray_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dump = token_dumps.open_dump(dumps.nemo_rl(tmp_path, [dumps.rollouts(0)]))
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtra, match=r"pip install 'foreshock\[ray\]'"):
        token_dumps.collect(dump, engine="ray")


def test_an_unknown_engine_or_no_worker_is_refused(tmp_path: Path) -> None:
    dump = token_dumps.open_dump(dumps.nemo_rl(tmp_path, [dumps.rollouts(0)]))
    with pytest.raises(InputError, match="expected one of local, ray"):
        token_dumps.collect(dump, engine="spark")
    with pytest.raises(InputError, match="0 workers"):
        token_dumps.collect(dump, workers=0)


def test_a_folder_without_a_dump_names_the_known_formats(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing")
    with pytest.raises(ReadError, match="prime-rl token export, NeMo-RL train data, slime train data, SkyRL"):
        token_dumps.open_dump(tmp_path)
