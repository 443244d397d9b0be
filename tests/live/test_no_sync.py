"""The whole path of a micro-batch through the monitor, on fake CUDA tensors: reading any value back would raise."""

import pytest
import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

from foreshock.adapters.trl.grpo import POLICY_KEY, PROMPT_KEY, TOOLS_KEY, token_batch
from foreshock.batch import PAIRS
from foreshock.live.monitor import Monitor, MonitorConfig
from foreshock.run import Run


def fake(*shape, dtype=torch.float32):
    return torch.empty(shape, dtype=dtype, device="cuda")


def micro_batch(rows, length):
    integers = {
        name: fake(rows, length, dtype=torch.int64) for name in ("completion_ids", "completion_mask", "tool_mask")
    }
    logs = [f"{name}_per_token_logps" for name in ("old", "ref", "sampling")]
    floats = {name: fake(rows, length) for name in logs}
    extras = {PROMPT_KEY: fake(rows, dtype=torch.bool), TOOLS_KEY: fake(rows, 3, dtype=torch.int64)}
    return {**integers, **floats, **extras, "advantages": fake(rows)}


def unguarded(monitor):
    """Let errors out that the monitor would keep away from training."""

    def raise_again(where, error):
        raise error

    monitor.note_error = raise_again
    return monitor


@pytest.mark.parametrize("slice_fn", [None, lambda inputs: (inputs["policy_log_probs"] < -1).long()])
def test_a_micro_batch_and_a_block_never_wait_for_the_device(slice_fn, devices_seen):
    slices = ("text_only", "post_tool", *(() if slice_fn is None else ("a", "b")))
    with FakeTensorMode():
        monitor = unguarded(
            Monitor(MonitorConfig(PAIRS, slices=slices), device=torch.device("cuda"), writer=None, run=Run())
        )
        with devices_seen() as seen:
            for _ in range(2):
                inputs = micro_batch(4, 16)
                policy = fake(4, 16)
                user_slices = None if slice_fn is None else slice_fn({**inputs, POLICY_KEY: policy})
                batch = token_batch(inputs, policy, user_slices)
                monitor.observe(batch, inputs["advantages"])
                monitor.observe_sample(batch)
            buffer = monitor._pack()
        assert seen == {"cuda"}
        assert buffer.shape == (sum(monitor._buffer_sizes),)


def test_the_test_can_fail(monkeypatch):
    with FakeTensorMode():
        monitor = unguarded(Monitor(MonitorConfig(PAIRS), device=torch.device("cuda"), writer=None, run=Run()))
        monkeypatch.setattr(monitor._counters, "add", lambda step, name, amount: torch.as_tensor(amount).item())
        with pytest.raises(DataDependentOutputException):
            monitor.observe(token_batch(micro_batch(4, 16), fake(4, 16)))


def test_a_copy_to_the_host_would_be_seen(devices_seen):
    with FakeTensorMode(), devices_seen() as seen:
        fake(4).cpu()
    assert "cpu" in seen
