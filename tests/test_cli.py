"""The command line on real run directories, as a user and as CI call it."""

import json
import subprocess
import sys

import numpy as np
import pytest
from click.testing import CliRunner

from foreshock.cli import main
from foreshock.run import Block, RunWriter, prepare_directory
from foreshock.sketch import LogRatioSketch


def write_run(folder, *, growth, blocks=30, comparator=True):
    rng = np.random.default_rng(0)
    writer = RunWriter(prepare_directory(folder), start_step=0, identity={"trainer": "GRPOTrainer"}, notices={})
    for index in range(blocks):
        sketch = LogRatioSketch()
        for slice_id, scale in enumerate((1.0, growth ** max(0, index - 8))):
            values = 0.2 * scale * rng.standard_t(3, size=3000)
            sketch.update(values.astype(np.float32), np.full(3000, slice_id))
        sketches = {"policy/ref": sketch} if comparator else {}
        writer.write_block(Block(index, 10 * index + 1, 10 * index + 10, sketches))
        for step in range(10 * index + 1, 10 * index + 11):
            writer.write_metrics(step, {"loss": rng.normal(0, 0.01), "reward": 0.5 + rng.normal(0, 0.05)})
    writer.end("finished")
    return str(folder)


@pytest.fixture
def call():
    runner = CliRunner()
    return lambda *arguments: runner.invoke(main, list(arguments), env={"NO_COLOR": "1", "COLUMNS": "100"})


@pytest.mark.parametrize(
    ("options", "arguments", "code"),
    [
        ({"growth": 1.0}, (), 0),
        ({"growth": 1.06}, (), 1),
        ({"growth": 1.06}, ("--fail-on", "critical"), 1),
        ({"growth": 1.06, "blocks": 21}, (), 1),
        ({"growth": 1.06, "blocks": 21}, ("--fail-on", "critical"), 0),
        ({"growth": 1.0, "comparator": False}, (), 3),
        ({"growth": 1.0, "blocks": 4}, (), 3),
    ],
)
def test_exit_codes_say_what_was_found(call, tmp_path, options, arguments, code):
    result = call("diagnose", write_run(tmp_path / "run", **options), *arguments)
    assert result.exit_code == code, result.output


def test_a_finding_weighs_more_than_a_run_that_cannot_be_judged(call, tmp_path):
    runs = [write_run(tmp_path / "a", growth=1.0, blocks=4), write_run(tmp_path / "b", growth=1.06)]
    assert call("diagnose", *runs).exit_code == 1


def test_json_is_one_document_with_the_documented_shape(call, tmp_path):
    runs = [write_run(tmp_path / "a", growth=1.06), write_run(tmp_path / "b", growth=1.0)]
    document = json.loads(call("diagnose", "--json", *runs).output)
    assert document["schema"] == 1
    assert [run["verdict"] for run in document["runs"]] == ["critical", "healthy"]
    finding = document["runs"][0]["findings"][0]
    assert {"rule", "severity", "slice", "steps", "summary"} <= set(finding)
    assert finding["name"] == "hidden tail growth"
    cause = document["runs"][0]["causes"][0]
    assert cause["name"] == "tool-conditioned support mismatch"
    assert cause["findings"] == ["post-tool-tail-growth"]
    assert all(cause[part] for part in ("evidence_for", "rival", "separating_check"))
    assert set(document["runs"][0]) == {
        "path", "verdict", "findings", "causes", "excluded", "judged", "not_asked", "cannot_judge", "aggregates",
        "skipped",
    }  # fmt: skip


@pytest.mark.parametrize("command", ["diagnose", "report", "watch"])
def test_what_is_no_run_is_one_line_and_exit_code_2(call, tmp_path, command):
    for path in (tmp_path, tmp_path / "missing"):
        result = call(command, str(path))
        assert result.exit_code == 2
        assert result.output.startswith("Error: ")
        assert len(result.output.splitlines()) == 1


def test_a_folder_that_cannot_be_written_to_is_exit_code_2(call, tmp_path):
    run = write_run(tmp_path / "run", growth=1.0, blocks=2)
    (tmp_path / "file").write_text("x")
    result = call("report", run, "--output", str(tmp_path / "file" / "sub"))
    assert result.exit_code == 2
    assert result.output.startswith("Error: ")


def test_report_writes_one_file_and_says_where(call, tmp_path):
    run = write_run(tmp_path / "run", growth=1.06)
    result = call("report", run, "--output", str(tmp_path / "elsewhere"))
    assert result.output.strip() == str(tmp_path / "elsewhere" / "report.html")
    assert "post-tool-tail-growth" in (tmp_path / "elsewhere" / "report.html").read_text()
    assert not (tmp_path / "run" / "report.html").exists()


def test_watch_once_shows_the_latest_blocks_and_the_verdict(call, tmp_path):
    result = call("watch", "--once", write_run(tmp_path / "run", growth=1.06))
    assert result.exit_code == 0
    assert "291–300" in result.output
    assert "CRITICAL" in result.output


def test_a_pipe_gets_no_colour_and_the_exit_code(tmp_path):
    command = [sys.executable, "-m", "foreshock", "diagnose", write_run(tmp_path / "run", growth=1.06)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert "\x1b" not in done.stdout
    assert "CRITICAL" in done.stdout


@pytest.fixture
def log(tmp_path):
    """A log of a run in which all samples of a group got the same reward from the start."""
    path = tmp_path / "any-name"
    row = {"loss": 0.0, "reward": 0.9, "reward_std": 0.0, "frac_reward_zero_std": 1.0, "unknown/key": 1}
    path.write_text("\n".join(json.dumps({"step": step, **row}) for step in range(1, 61)) + '\n{"step": 61, "lo')
    return str(path)


def test_a_foreign_log_is_diagnosed_as_it_is(call, log):
    result = call("diagnose", "--json", log)
    (run,) = json.loads(result.output)["runs"]
    assert result.exit_code == 1
    assert (run["verdict"], run["findings"][0]["rule"]) == ("critical", "zero-learning-signal")
    assert "logged scalars only" in " ".join(run["cannot_judge"])
    assert sum(run["skipped"].values()) == 1


def test_inspect_says_what_was_read_and_what_was_not(call, log):
    document = json.loads(call("inspect", "--json", log).output)
    assert (document["format"], document["rows"], document["steps"]) == ("JSONL metrics", 60, [1, 60])
    assert document["keys"]["unknown/key"]["values"] == 60
    assert "unknown/key" in call("inspect", log).output


def test_a_report_of_a_log_lies_beside_it(call, log, tmp_path):
    assert call("report", log).output.strip() == str(tmp_path / "report.html")
    assert "This run holds only logged scalars" in (tmp_path / "report.html").read_text()


def test_a_folder_of_runs_is_a_table_with_the_worst_first(call, tmp_path):
    write_run(tmp_path / "runs" / "fine", growth=1.0)
    write_run(tmp_path / "runs" / "grows", growth=1.06)
    write_run(tmp_path / "runs" / "short", growth=1.0, blocks=4)
    result = call("diagnose", str(tmp_path / "runs"))
    assert result.exit_code == 1, result.output
    places = [result.output.index(name) for name in ("grows", "short", "fine")]
    assert places == sorted(places)
    assert "post-tool-tail-growth" in result.output
    document = json.loads(call("diagnose", str(tmp_path / "runs"), "--json").output)
    assert len(document["runs"]) == 3
    assert document["unreadable"] == []


def test_one_unreadable_run_does_not_hide_the_others(call, tmp_path):
    junk = tmp_path / "junk.log"
    junk.write_bytes(bytes(range(256)))
    result = call("diagnose", write_run(tmp_path / "fine", growth=1.0), str(junk))
    assert result.exit_code == 2
    assert "Healthy" in result.output
    assert "Cannot be read" in result.output
    assert call("diagnose", write_run(tmp_path / "grows", growth=1.06), str(junk)).exit_code == 1


def test_a_finding_shows_the_course_of_the_tail(call, tmp_path):
    output = call("diagnose", write_run(tmp_path / "run", growth=1.06)).output
    text, post = (next(line for line in output.splitlines() if f"p99 {name}" in line) for name in ("text", "post"))
    assert "█" in post
    assert "█" not in text


def test_commands_stand_in_the_order_of_use(call):
    output = call("--help").output
    places = [output.index(f"\n  {name} ") for name in ("demo", "watch", "diagnose", "compare", "reproduce")]
    assert places == sorted(places)
    assert "…" not in output
    assert "..." not in output.partition("Commands:")[2]


def test_the_table_names_runs_below_their_folder(call, tmp_path):
    write_run(tmp_path / "runs" / "grows", growth=1.06)
    write_run(tmp_path / "runs" / "fine", growth=1.0, blocks=20)
    lines = call("diagnose", str(tmp_path / "runs")).output.splitlines()
    assert str(tmp_path / "runs") in "".join(lines[:3])
    assert any(line.split()[:2] == ["Critical", "grows"] for line in lines)


@pytest.mark.parametrize("command", [("report",), ("compare",), ("watch", "--once")])
def test_traces_are_sent_to_the_command_that_reads_them(call, tmp_path, command):
    traces = tmp_path / "chats.jsonl"
    traces.write_text('{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}\n')
    arguments = (str(traces), str(traces)) if command == ("compare",) else (str(traces),)
    result = call(*command, *arguments)
    assert result.exit_code == 2
    assert len(result.output.splitlines()) == 1


@pytest.mark.parametrize("command", [("report",), ("watch", "--once")])
def test_report_and_watch_take_files_of_rules(call, tmp_path, command):
    rules = tmp_path / "team.toml"
    rules.write_text('[[rule]]\nid = "paid"\nmetric = "reward"\ncondition = "> 0.1"\nmessage = "It is paid."\n')
    result = call(*command, write_run(tmp_path / "run", growth=1.0), "--rules", str(rules))
    assert result.exit_code == 0, result.output
    report = tmp_path / "run" / "report.html"
    assert "It is paid." in (report.read_text() if report.exists() else result.output)


def test_what_cannot_be_read_is_told_every_kind_of_file(call, tmp_path):
    (tmp_path / "junk").write_bytes(bytes(range(256)))
    output = call("diagnose", str(tmp_path / "junk")).output
    assert "token dump" in output
    assert "traces of an agent" in output


@pytest.mark.parametrize("command", [("dataset", "--kind", "sft", "--output", "x.jsonl"), ("watch",), ("diagnose",)])
def test_a_path_without_anything_does_not_exist(call, tmp_path, command):
    result = call(*command, str(tmp_path / "missing"))
    assert result.exit_code == 2
    assert "does not exist. Pass " in result.output


def test_a_data_set_may_lie_in_a_new_folder(call, tmp_path):
    traces = tmp_path / "chats.jsonl"
    chat = {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], "success": True}
    traces.write_text(json.dumps(chat) + "\n")
    output = tmp_path / "new" / "sft.jsonl"
    assert call("dataset", str(traces), "--kind", "sft", "--output", str(output)).exit_code == 0
    assert output.exists()


@pytest.mark.parametrize(("no_color", "is_coloured"), [("1", False), ("", True)])
def test_an_error_has_no_colour_where_none_is_wanted(tmp_path, no_color, is_coloured):
    result = CliRunner().invoke(main, ["diagnose", str(tmp_path / "no")], env={"NO_COLOR": no_color}, color=True)
    assert ("\x1b[31m" in result.output) == is_coloured
