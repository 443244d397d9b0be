"""docs/json.md names every field of every JSON document, and no other."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from foreshock.cli import main
from foreshock.run import Block, RunWriter, prepare_directory
from foreshock.sketch import LogRatioSketch

PAGE = Path(__file__).parents[2] / "docs" / "json.md"


def documented(heading):
    section = re.split(r"^#+ ", PAGE.read_text(), flags=re.MULTILINE)
    (table,) = [part for part in section if part.startswith(f"{heading}\n")]
    return {name for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}


def write_run(folder, *, growth, seed):
    rng = np.random.default_rng(seed)
    writer = RunWriter(prepare_directory(folder), start_step=0, identity={"config": {"seed": seed}}, notices={})
    for index in range(30):
        sketch = LogRatioSketch()
        for slice_id, scale in enumerate((1.0, growth ** max(0, index - 8))):
            sketch.update((0.2 * scale * rng.standard_t(3, size=2000)).astype(np.float32), np.full(2000, slice_id))
        writer.write_block(Block(index, 10 * index + 1, 10 * index + 10, {"policy/ref": sketch}))
        for step in range(10 * index + 1, 10 * index + 11):
            writer.write_metrics(step, {"loss": rng.normal(0, 0.01), "reward": 0.5 + rng.normal(0, 0.05)})
    writer.end("finished")
    return str(folder)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return [write_run(folder / "a", growth=1.06, seed=0), write_run(folder / "b", growth=1.0, seed=1)]


def call(*arguments):
    return json.loads(CliRunner().invoke(main, list(arguments)).stdout)


def test_diagnosis(runs, tmp_path):
    (tmp_path / "junk").write_bytes(bytes(range(256)))
    document = call("diagnose", "--json", *runs, str(tmp_path / "junk"))
    run = document["runs"][0]
    assert set(document) == documented("Diagnosis")
    assert set(document["unreadable"][0]) == {"path", "error"}
    assert set(run) == documented("Run")
    assert set(run["findings"][0]) == documented("Finding")
    assert set(run["causes"][0]) == documented("Cause")
    assert set(run["excluded"][0]) == {"name", "evidence_against"}
    assert set(run["aggregates"]["loss"]) == documented("Aggregate")


def test_audit_has_the_shape_of_a_diagnosis(tmp_path):
    chat = {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}
    (tmp_path / "chats.jsonl").write_text("\n".join([json.dumps(chat)] * 20))
    document = call("audit", "--json", str(tmp_path / "chats.jsonl"))
    assert set(document) == documented("Diagnosis")
    assert set(document["runs"][0]) == documented("Run")


def test_comparison(runs):
    document = call("compare", "--json", *runs)
    assert set(document) == documented("Comparison")
    assert set(document["differences"][0]) == documented("Difference")
    assert document["settings"] == [{"name": "config.seed", "a": 0, "b": 1}]
    assert {"run", "segment", "steps", "reward"} <= set(document["segments"][0])


def test_description(runs, tmp_path):
    (tmp_path / "log.jsonl").write_text('{"step": 1, "reward": 1.0}\n{"step": 2, "reward": 1.0}\n')
    for path in (runs[0], str(tmp_path / "log.jsonl")):
        document = call("inspect", "--json", path)
        assert set(document) == documented("Description")
        assert set(document["keys"]["reward"]) == {"values", "from"}
