"""What is recorded from real GRPO trainers, against the same numbers computed another way."""

import math

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM
from trl import GRPOTrainer

import foreshock
from foreshock.adapters.trl.grpo import NO_SUCH_TOOL, prompt_has_observation, tool_names, tool_numbers
from foreshock.adapters.trl.probe import PROBE_SHARE
from foreshock.rules import mismatch_slices
from foreshock.run import read_run_directory

TOOL_PROMPT = [
    {"role": "user", "content": "what has e1 ?"},
    {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "lookup", "arguments": {"key": "e1"}}}]},
    {"role": "tool", "name": "lookup", "content": "value = v3"},
]  # fmt: skip


class Witness(GRPOTrainer):
    """Computes per-token log-ratios by hand, from full logits, slices from a loop over tokens."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.seen = {"text_only": [], "post_tool": []}
        self.rows = 0

    def _compute_loss(self, model, inputs):
        loss = super()._compute_loss(model, inputs)
        if model.training:
            self.rows += len(inputs["completion_ids"])
            policy, ref = self.by_hand(model, inputs), inputs.get("ref_per_token_logps")
            if ref is not None:
                self.note((policy - ref).detach(), inputs)
        return loss

    @torch.no_grad()
    def by_hand(self, model, inputs):
        ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
        attention = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
        logits = model(input_ids=ids, attention_mask=attention).logits[:, :-1]
        logs = torch.log_softmax(logits.float() / self.temperature, -1).gather(-1, ids[:, 1:, None])[..., 0]
        return logs[:, -inputs["completion_ids"].shape[1] :]

    def note(self, log_ratio, inputs):
        tool_mask = inputs.get("tool_mask", torch.ones_like(inputs["completion_mask"]))
        for row in range(len(log_ratio)):
            after = False
            for token in range(log_ratio.shape[1]):
                if not inputs["completion_mask"][row, token]:
                    continue
                if not tool_mask[row, token]:
                    after = True
                else:
                    self.seen["post_tool" if after else "text_only"].append(float(log_ratio[row, token]))


def totals(run, counter):
    return sum(block.total(counter) for block in run.blocks)


def merged(run, pair):
    found = [block.sketches[pair] for block in run.blocks if pair in block.sketches]
    return foreshock.LogRatioSketch.merged(found)


def test_policy_ref_with_tools_matches_a_computation_by_hand(make_trainer, tmp_path):
    trainer = make_trainer(trainer_class=Witness, beta=0.05, max_steps=4)
    foreshock.watch(trainer, run_dir=tmp_path / "run", steps_per_block=2)
    trainer.train()
    run = read_run_directory(tmp_path / "run")
    assert [(block.first_step, block.last_step) for block in run.blocks] == [(1, 2), (3, 4)]
    sketch = merged(run, "policy/ref")
    for name, expected in trainer.seen.items():
        assert sketch.n(name) == len(expected) > 10
        exact = np.quantile(np.abs(expected), 0.95, method="inverted_cdf")
        assert sketch.quantile(0.95, name).value == pytest.approx(exact, rel=0.009, abs=3e-6)
        assert sketch.mean(name).value == pytest.approx(np.mean(expected), abs=1e-5)
    assert totals(run, "rows") == trainer.rows == 32
    assert totals(run, "response_tokens") == sum(map(len, trainer.seen.values()))
    assert totals(run, "post_tool_tokens") == len(trainer.seen["post_tool"])
    assert totals(run, "observation_tokens") > 0
    assert set(run.blocks[0].sketches) == {"policy/ref"}


def test_values_reach_the_trainers_own_logs(make_trainer, tmp_path):
    trainer = make_trainer(beta=0.05, max_steps=5)
    foreshock.watch(trainer, run_dir=tmp_path / "run", steps_per_block=2)
    trainer.train()
    rows = [row for row in trainer.state.log_history if "reward" in row]
    keys = [{key for key in row if key.startswith("foreshock/")} for row in rows]
    assert [len(found) for found in keys[:2]] == [0, 0]  # the first block is full after step 2 and collected after 3
    assert all(4 <= len(found) <= 8 for found in keys[2:])
    assert "foreshock/policy_ref/abs_p99/post_tool" in keys[-1]
    block = read_run_directory(tmp_path / "run").blocks[1]
    expected = block.sketches["policy/ref"].quantile(0.99, "text_only").value
    assert rows[4]["foreshock/policy_ref/abs_p99/text_only"] == pytest.approx(expected)


def test_old_log_probs_with_accumulation_iterations_and_reuse(make_trainer, tmp_path):
    options = {"gradient_accumulation_steps": 2, "steps_per_generation": 4, "num_iterations": 2}
    trainer = make_trainer(**options, max_steps=6, mask_truncated_completions=True)
    foreshock.watch(trainer, run_dir=tmp_path / "run", steps_per_block=3)
    trainer.train()
    run = read_run_directory(tmp_path / "run")
    assert {pair for block in run.blocks for pair in block.sketches} == {"policy/old"}
    assert totals(run, "rows") == 6 * 2 * 8
    assert totals(run, "micro_batches") == 12
    sketch = merged(run, "policy/old")
    assert sketch.n("text_only") + sketch.n("post_tool") == totals(run, "response_tokens")
    assert sketch.quantile(0.99, "text_only").value > 0


def test_truncated_rows_drop_out(make_trainer, tmp_path):
    options = {"beta": 0.05, "max_completion_length": 9, "mask_truncated_completions": True, "tools": False}
    trainer = make_trainer(trainer_class=Witness, **options)
    foreshock.watch(trainer, run_dir=tmp_path / "run")
    trainer.train()
    run = read_run_directory(tmp_path / "run")
    sketch = merged(run, "policy/ref")
    assert totals(run, "rows") == 24
    assert sketch.n("text_only") == totals(run, "response_tokens") == len(trainer.seen["text_only"])
    assert 0 < sketch.sequences[0, 0] < 24


def test_a_prompt_with_a_tool_result_is_post_tool_from_its_first_token(make_trainer, tmp_path):
    rows = [
        {"prompt": TOOL_PROMPT, "kind": "lookup", "subject": "e1"},
        {"prompt": TOOL_PROMPT[:1], "kind": "lookup", "subject": "e1"},
    ]
    trainer = make_trainer(
        tools=False, beta=0.05, rows=rows * 10, gradient_accumulation_steps=2, steps_per_generation=2
    )
    foreshock.watch(trainer, run_dir=tmp_path / "run")
    trainer.train()
    run = read_run_directory(tmp_path / "run")
    assert totals(run, "observation_tokens") == 0
    assert 0 < totals(run, "post_tool_tokens") < totals(run, "response_tokens")
    assert merged(run, "policy/ref").n("post_tool") == totals(run, "post_tool_tokens")


def test_prompts_of_every_kind_are_read():
    assert prompt_has_observation(TOOL_PROMPT)
    assert not prompt_has_observation(TOOL_PROMPT[:1])
    assert not prompt_has_observation("a plain text prompt with the word tool")
    assert not prompt_has_observation(None)


def test_rollout_log_probs_leave_placeholders_out_and_count_what_is_missing(make_trainer, rollout, tmp_path):
    trainer = make_trainer(tools=False, rollout_func=rollout, max_steps=2)
    foreshock.watch(trainer, run_dir=tmp_path / "run")
    trainer.train()
    run = read_run_directory(tmp_path / "run")
    assert set(run.blocks[0].sketches) == {"policy/rollout"}
    sketch = merged(run, "policy/rollout")
    assert (sketch.n("text_only"), sketch.n("post_tool")) == (16, 48)
    assert sketch.tally("text_only")["nan"] == 16
    assert totals(run, "nonfinite/rollout") == 16
    assert totals(run, "observation_tokens") == 48


@pytest.mark.parametrize("masked", [True, False], ids=["right mask", "tool results trained"])
def test_tool_results_inside_the_mask_are_named_a_mask_error(make_trainer, rollout, tmp_path, masked):
    def rolled_out(prompts, trainer):
        outputs = rollout(prompts, trainer)
        outputs["logprobs"] = [[-1.0 if log is None else log for log in row] for row in outputs["logprobs"]]
        return outputs if masked else {**outputs, "env_mask": [[1] * len(row) for row in outputs["env_mask"]]}

    trainer = make_trainer(tools=False, rollout_func=rolled_out, max_steps=16)
    foreshock.watch(trainer, run_dir=tmp_path / "run")
    trainer.train()
    run = read_run_directory(tmp_path / "run")
    assert totals(run, "unscored_tokens") == (0 if masked else 16 * 8 * 3)
    findings = mismatch_slices.check(run).findings
    assert [(each.severity, each.name) for each in findings if each.name == "mask error"] == (
        [] if masked else [("critical", "mask error")]
    )


def test_old_over_rollout_when_both_exist(make_trainer, rollout, tmp_path):
    trainer = make_trainer(tools=False, rollout_func=rollout, max_steps=2, num_iterations=2)
    foreshock.watch(trainer, run_dir=tmp_path / "run")
    trainer.train()
    assert set(read_run_directory(tmp_path / "run").blocks[0].sketches) == {"policy/old", "old/rollout"}


class Shop:
    """An environment with one tool."""

    def reset(self, **kwargs):
        return None

    def lookup(self, key: str) -> str:
        """Look up a value.

        Args:
            key: The name.
        """
        return "value = v2"


def test_environment_factory(make_trainer, tmp_path):
    trainer = make_trainer(tools=False, environment_factory=Shop, beta=0.05, trainer_class=Witness)
    foreshock.watch(trainer, run_dir=tmp_path / "run")
    trainer.train()
    run = read_run_directory(tmp_path / "run")
    assert merged(run, "policy/ref").n("post_tool") == len(trainer.seen["post_tool"]) > 0


def test_the_adapter_is_switched_off_for_a_small_share_of_rows_when_nothing_else_compares(make_trainer, tmp_path):
    trainer = make_trainer(peft=True, max_steps=6, learning_rate=0.05)
    foreshock.watch(trainer, run_dir=tmp_path / "run", steps_per_block=1)
    trainer.train()
    run = read_run_directory(tmp_path / "run")
    assert set().union(*(block.sketches for block in run.blocks)) == {"policy/ref"}
    probed = sum(block.sketches["policy/ref"].sequences[0, 0] for block in run.blocks if block.sketches)
    assert 0 < probed <= math.ceil(PROBE_SHARE * totals(run, "rows"))
    first = next(block for block in run.blocks if block.sketches)
    last = run.blocks[-1] if run.blocks[-1].sketches else run.blocks[-2]
    assert first.last_step <= math.ceil(1 / (PROBE_SHARE * first.total("rows")))
    assert last.sketches["policy/ref"].quantile(0.95, "text_only").value > 1e-3
    assert "no-comparator" not in run.notices


def test_a_new_adapter_equals_its_base_model(make_trainer, tmp_path):
    trainer = make_trainer(peft=True, max_steps=4, learning_rate=0.0)
    foreshock.watch(trainer, run_dir=tmp_path / "run")
    trainer.train()
    sketch = merged(read_run_directory(tmp_path / "run"), "policy/ref")
    assert sketch.quantile(1.0, "text_only").value < 1e-5


def test_peft_with_beta(make_trainer, tmp_path):
    trainer = make_trainer(peft=True, beta=0.05, trainer_class=Witness)
    foreshock.watch(trainer, run_dir=tmp_path / "run")
    trainer.train()
    assert merged(read_run_directory(tmp_path / "run"), "policy/ref").n("text_only") == len(trainer.seen["text_only"])


@pytest.mark.parametrize(("learning_rate", "low", "high"), [(0.0, 0.0, 1e-5), (0.01, 1e-3, 10.0)])
def test_a_reference_model_can_be_given(make_trainer, reference, tmp_path, learning_rate, low, high):
    trainer = make_trainer(max_steps=4, learning_rate=learning_rate)
    ref_model = AutoModelForCausalLM.from_pretrained(reference)
    foreshock.watch(trainer, run_dir=tmp_path / "run", ref_model=ref_model, steps_per_block=2)
    trainer.train()
    assert low <= merged(read_run_directory(tmp_path / "run"), "policy/ref").quantile(0.9, "text_only").value <= high


def test_user_slices_stand_beside_the_built_in_ones(make_trainer, tmp_path):
    def third_token_on(inputs):
        ids = torch.full_like(inputs["completion_ids"], -1)
        ids[:, 2:4] = 1
        ids[:, :2] = 0
        return ids

    trainer = make_trainer(beta=0.05, trainer_class=Witness)
    foreshock.watch(trainer, run_dir=tmp_path / "run", slice_fn=third_token_on, slices=("opening", "second"))
    trainer.train()
    sketch = merged(read_run_directory(tmp_path / "run"), "policy/ref")
    assert sketch.slices == ("text_only", "post_tool", "opening", "second")
    assert sketch.n("text_only") == len(trainer.seen["text_only"])
    assert sketch.n("opening") == trainer.rows * 2
    assert 0 < sketch.n("second") <= trainer.rows * 2


def test_tokens_can_be_sliced_by_their_probability(make_trainer, tmp_path):
    def probability_bin(inputs):
        return torch.bucketize(inputs["policy_log_probs"].exp(), torch.tensor([0.01, 0.5]))

    trainer = make_trainer(beta=0.05, trainer_class=Witness)
    foreshock.watch(trainer, run_dir=tmp_path / "run", slice_fn=probability_bin, slices=("rare", "middle", "likely"))
    trainer.train()
    sketch = merged(read_run_directory(tmp_path / "run"), "policy/ref")
    tokens = sum(map(len, trainer.seen.values()))
    assert sum(sketch.n(name) for name in ("rare", "middle", "likely")) == tokens
    assert sketch.n("likely") > 0
    assert sketch.alpha().value == pytest.approx(len(trainer.seen["post_tool"]) / tokens)


def result(name):
    return {"role": "tool", "name": name, "content": ""}


def test_the_tool_behind_each_stretch_of_results_is_read_from_the_messages():
    names = ("search", "add", NO_SUCH_TOOL)
    turn = {"role": "assistant", "content": ""}
    completions = [
        [turn, result("search"), result("add"), turn, result("search")],
        [turn, result("invented"), turn, {"role": "tool", "content": "no name"}, turn],
        [turn],
    ]
    prompts = [TOOL_PROMPT[:1], [*TOOL_PROMPT[:2], result("add")], [result("of another time"), turn]]
    assert tool_numbers(prompts, completions, names) == [[-1, 1, 0], [1, 2, -1], [-1, -1, -1]]
    assert tool_numbers(["text"] * 2, ["text", None], names) == []


@pytest.mark.parametrize("environment", [False, True])
def test_the_tool_of_the_largest_tokens_is_named(make_trainer, tmp_path, environment):
    options = {"tools": False, "environment_factory": Shop} if environment else {}
    trainer = make_trainer(**options, beta=0.05, gradient_accumulation_steps=2, steps_per_generation=2)
    assert tool_names(trainer) == ("lookup", NO_SUCH_TOOL)
    foreshock.watch(trainer, run_dir=tmp_path / "run")
    trainer.train()
    top = [block.top for block in read_run_directory(tmp_path / "run").blocks]
    after = [token for block in top for token in block["post_tool"]]
    assert len(after) > 5
    assert {token.tool for token in after} == {"lookup"}
    assert {token.tool for block in top for token in block["text_only"]} == {""}
