from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch._subclasses.fake_tensor import (  # noqa: E402
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)

from foreshock.errors import InputError, LayoutError  # noqa: E402
from foreshock.sketch import LogRatioSketch, device  # noqa: E402
from foreshock.sketch.buckets import FRACTION_MASK  # noqa: E402
from foreshock.sketch.device import DeviceSketch, packed_length, unpack  # noqa: E402

SLICES = ("text_only", "post_tool")
PAIRS = ("policy/ref", "policy/old")
EXACT = ("counts", "fractions", "tallies", "extremes", "masked", "outside")
SPECIAL = [0.0, -0.0, 1e-30, -1e-30, 80, -80, 300, -300, 3e38, -3e38, float("nan"), float("inf"), -float("inf")]


def batch(rows: int, columns: int, slices: int = 2, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Log-ratios with every kind of value, slice ids and a mask, (rows, columns)."""
    g = np.random.default_rng(seed)
    values = (g.standard_t(2, (rows, columns)) * 0.3).astype(np.float32)
    values[g.random(values.shape) < 0.35] = 0
    odd = g.random(values.shape) < 0.02
    values[odd] = g.choice(SPECIAL, int(odd.sum()))
    ids, mask = g.integers(0, slices, values.shape), g.random(values.shape) < 0.7
    return torch.from_numpy(values), torch.from_numpy(ids), torch.from_numpy(mask)


def on_device(*batches: tuple[torch.Tensor, ...], slices: tuple[str, ...] = SLICES) -> LogRatioSketch:
    sketch = DeviceSketch(("policy/ref",), slices, "cpu")
    for values in batches:
        sketch.update("policy/ref", *values)
    return unpack(sketch.pack().numpy(), ("policy/ref",), slices)["policy/ref"]


def on_host(*batches: tuple[torch.Tensor, ...], slices: tuple[str, ...] = SLICES) -> LogRatioSketch:
    sketch = LogRatioSketch(slices)
    for values in batches:
        sketch.update(*values)
    return sketch


def assert_same(one: LogRatioSketch, two: LogRatioSketch) -> None:
    for name in EXACT:
        assert np.array_equal(getattr(one, name), getattr(two, name)), name
    np.testing.assert_allclose(one.sequences, two.sequences, rtol=1e-9)


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (7, 1), (1, 1000), (64, 300), (3, 20_000), (2, 40_000)])
def test_the_device_counts_as_the_host_does(rows: int, columns: int) -> None:
    values = batch(rows, columns)
    assert_same(on_device(values), on_host(values))


@pytest.mark.parametrize("n", [1, 2, 10, 1_000, 30_000])
def test_quantiles_are_within_the_promised_error(draw: Callable[[int], np.ndarray], n: int) -> None:
    values = draw(n)
    got = on_device((torch.from_numpy(values).view(1, n), torch.ones(1, n, dtype=torch.int64), torch.ones(1, n)))
    for q in (0.01, 0.5, 0.95, 0.99, 0.999):
        exact = np.quantile(np.abs(values.astype(np.float64)), q, method="inverted_cdf")
        if 1e-6 <= exact <= 100:
            assert abs(got.quantile(q, "post_tool").value - exact) <= 0.0078 * exact


def test_several_updates_pairs_and_a_reset() -> None:
    first, second = batch(10, 50, seed=1), batch(30, 20, seed=2)
    sketch = DeviceSketch(PAIRS, SLICES, torch.device("cpu"))
    for _ in range(2):
        sketch.update("policy/ref", *first)
        sketch.update("policy/old", *second)
        sketch.update("policy/ref", *second)
        got = unpack(sketch.pack().numpy(), PAIRS, SLICES)
        assert_same(got["policy/ref"], on_host(first, second))
        assert_same(got["policy/old"], on_host(second))
        sketch.reset()
    empty = unpack(sketch.pack().numpy(), PAIRS, SLICES)
    assert empty["policy/ref"] == LogRatioSketch()


@pytest.mark.parametrize("size", [1, 3, device.MAX_MASKED_SLICES, device.MAX_MASKED_SLICES + 1, 64])
def test_any_number_of_slices(size: int) -> None:
    slices = tuple(f"tool_{i}" for i in range(size))
    values = batch(16, 200, slices=size)
    assert_same(on_device(values, slices=slices), on_host(values, slices=slices))


@pytest.mark.parametrize("name", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("mask_name", ["bool", "uint8", "int64", "float32", "bfloat16"])
def test_dtypes(name: str, mask_name: str) -> None:
    values, ids, mask = batch(20, 30)
    values = values.to(getattr(torch, name))
    for id_dtype in (torch.int64, torch.int32, torch.uint8, torch.bool):
        got = on_device((values, ids.to(id_dtype), mask.to(getattr(torch, mask_name))))
        assert_same(got, on_host((values.float(), ids, mask)))
    assert_same(on_host((values, ids, mask)), got)


def test_non_contiguous_tensors_and_gradients() -> None:
    values, ids, mask = batch(40, 60)
    every_other = torch.zeros(80, 120)
    every_other[::2, ::2] = values
    transposed = values.T.contiguous().T.requires_grad_()
    wide_ids, wide_mask = ids.repeat_interleave(2, 1)[:, ::2], mask.T.contiguous().T
    for view in (every_other[::2, ::2], transposed):
        assert not view.is_contiguous()
        assert_same(on_device((view, wide_ids, wide_mask)), on_host((values, ids, mask)))
    one_slice_a_row = ids[:, :1].expand(40, 60)
    assert_same(on_device((values, one_slice_a_row, mask)), on_host((values, one_slice_a_row, mask)))


def test_special_values_and_masked_rows_raise_no_warning() -> None:
    values = torch.tensor([SPECIAL, SPECIAL, SPECIAL])
    ids = torch.zeros(values.shape, dtype=torch.int64)
    mask = torch.tensor([[1], [1], [0]]).expand(values.shape)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = on_device((values, ids, mask))
    assert got.tally("text_only") == {"nan": 2, "pos_inf": 2, "neg_inf": 2}
    assert got.n("text_only") == 20
    assert got.masked == 13
    assert got.sequences[0, 0] == 2
    assert_same(got, on_host((values, ids, mask)))


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0, 0), (3, 4)])
def test_no_response_token(shape: tuple[int, int]) -> None:
    nothing = torch.zeros(shape), torch.zeros(shape, dtype=torch.int64), torch.zeros(shape, dtype=torch.bool)
    got = on_device(nothing)
    assert (got.n("text_only"), got.masked) == (0, math.prod(shape))
    assert got.extremes.tolist() == [[0, 0]] * 2


def test_slice_ids_outside_the_layout_are_counted_apart() -> None:
    values = torch.zeros(1, 5)
    ids, mask = torch.tensor([[-1, 0, 1, 2, -5]]), torch.tensor([[True, True, True, True, False]])
    got = on_device((values, ids, mask))
    assert (got.n("text_only"), got.n("post_tool"), got.outside, got.masked) == (1, 1, 2, 1)


def test_the_inputs_stay_as_they_are() -> None:
    values = batch(5, 7)
    copies = [v.clone() for v in values]
    on_device(values)
    assert all(torch.equal(v, c) or torch.isnan(c).any() for v, c in zip(values, copies, strict=True))
    assert torch.equal(values[0].view(torch.int32), copies[0].view(torch.int32))


def test_chunks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    values = batch(50, 40)
    whole = on_device(values)
    for chunk in (1, 130, 1_000):
        monkeypatch.setattr(device, "CPU_CHUNK", chunk)
        assert_same(on_device(values), whole)


def test_packed_sums_are_taken_apart_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many tokens with the largest fraction in one cell; a sum of too many would carry into the count."""
    monkeypatch.setattr(device, "CPU_CHUNK", 1 << 22)
    largest = float(np.nextafter(np.float32(0.5), np.float32(0)))
    values = torch.full((8, 1 << 20), largest), torch.ones(8, 1 << 20, dtype=torch.int8), torch.ones(8, 1 << 20)
    got = on_device(values, tuple(x[:3] for x in values))
    assert got.n("post_tool") == 11 << 20
    assert got.fractions.sum() == (11 << 20) * FRACTION_MASK
    assert got.mean("post_tool").value == pytest.approx(largest, rel=1e-15)


def test_one_row_longer_than_the_packed_sums_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "MAX_PENDING", 100)
    values = batch(3, 1_234)
    assert_same(on_device(values, values), on_host(values, values))


@pytest.mark.slow
def test_a_hundred_million_tokens_in_chunks() -> None:
    values, ids, mask = batch(10_000, 1_000)
    device_sketch, host = DeviceSketch(PAIRS, SLICES, "cpu"), LogRatioSketch()
    for _ in range(10):
        device_sketch.update("policy/ref", values, ids, mask)
    host.update(values, ids, mask)
    got = unpack(device_sketch.pack().numpy(), PAIRS, SLICES)["policy/ref"]
    assert np.array_equal(got.counts, 10 * host.counts)
    assert np.array_equal(got.fractions, 10 * host.fractions)
    assert np.array_equal(got.tallies, 10 * host.tallies)
    assert got.masked + sum(got.n(name) for name in SLICES) + got.tallies.sum() == 10**8
    assert got.mean("post_tool").value == pytest.approx(host.mean("post_tool").value, rel=1e-12)
    whole = LogRatioSketch()
    for _ in range(10):
        whole.update(values.numpy(), ids.numpy(), mask.numpy())
    assert_same(got, whole)


def test_workers_merge_by_one_sum() -> None:
    batches = [batch(20, 30, seed=i) for i in range(3)]
    vectors = []
    for rank, values in enumerate(batches):
        sketch = DeviceSketch(PAIRS, SLICES, "cpu", rank=rank, world_size=3)
        if rank != 1:  # one worker has nothing for this pair
            sketch.update("policy/old", *values)
        sketch.update("policy/ref", *values)
        vectors.append(sketch.pack())
        assert vectors[-1].shape == (packed_length(PAIRS, SLICES, 3),)
        assert vectors[-1].dtype == torch.float64
    got = unpack(sum(vectors).numpy(), PAIRS, SLICES, 3)
    assert_same(got["policy/ref"], on_host(*batches))
    assert_same(got["policy/old"], on_host(batches[0], batches[2]))


def test_the_length_of_the_vector_does_not_depend_on_data() -> None:
    sketch = DeviceSketch(PAIRS, SLICES, "cpu", world_size=8)
    empty = sketch.pack().shape
    sketch.update("policy/ref", *batch(100, 100))
    assert sketch.pack().shape == empty == (packed_length(PAIRS, SLICES, 8),)


def test_wrong_input_names_what_was_given_and_expected() -> None:
    sketch = DeviceSketch(PAIRS, SLICES, "cpu")
    values, ids, mask = batch(3, 4)
    with pytest.raises(InputError, match="pair: got 'old', expected one of"):
        sketch.update("old", values, ids, mask)
    with pytest.raises(LayoutError, match=r"log_ratio: got shape \(12,\), expected \(B, T\)"):
        sketch.update("policy/ref", values.ravel(), ids.ravel(), mask.ravel())
    with pytest.raises(LayoutError, match=r"slice_ids: got shape \(4, 3\), expected \(3, 4\)"):
        sketch.update("policy/ref", values, ids.T, mask)
    with pytest.raises(LayoutError, match=r"mask: got shape \(3, 1\), expected \(3, 4\)"):
        sketch.update("policy/ref", values, ids, mask[:, :1])
    with pytest.raises(InputError, match=r"log_ratio: got torch.int64, expected a floating dtype"):
        sketch.update("policy/ref", ids, ids, mask)
    with pytest.raises(InputError, match=r"slice_ids: got torch.float32, expected integers"):
        sketch.update("policy/ref", values, values, mask)
    with pytest.raises(InputError, match="mask: got device meta, expected cpu"):
        sketch.update("policy/ref", values, ids, mask.to("meta"))
    with pytest.raises(InputError, match="rank: got 2, expected 0 to 1"):
        DeviceSketch(PAIRS, SLICES, "cpu", rank=2, world_size=2)
    with pytest.raises(InputError, match="pairs: got"):
        DeviceSketch("policy/ref", SLICES, "cpu")
    with pytest.raises(LayoutError, match=r"buffer: got shape \(3,\), expected \(\d+,\)"):
        unpack(np.zeros(3), PAIRS, SLICES)
    assert unpack(sketch.pack().numpy(), PAIRS, SLICES)["policy/ref"] == LogRatioSketch()


def test_memory_does_not_grow() -> None:
    sketch = DeviceSketch(PAIRS, SLICES, "cpu")
    for i in range(3):
        sketch.update("policy/ref", *batch(20, 500, seed=i))
    before = sketch._scratch
    sketch.update("policy/ref", *batch(20, 500))
    sketch.update("policy/old", *batch(5, 10))
    assert sketch._scratch is before
    sketch.update("policy/ref", *batch(300, 500))
    assert sketch._scratch.tokens <= device.CPU_CHUNK


def fake_cuda_batch(mask_dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    return (
        torch.zeros(8, 16, device="cuda", dtype=torch.bfloat16),
        torch.zeros(8, 16, device="cuda", dtype=torch.int64),
        torch.zeros(8, 16, device="cuda", dtype=mask_dtype),
    )


@pytest.mark.parametrize("mask_dtype", [torch.bool, torch.int64, torch.float32])
@pytest.mark.parametrize("slices", [SLICES, tuple("abcdefghi")])
def test_no_host_synchronisation(mask_dtype: torch.dtype, slices: tuple[str, ...]) -> None:
    with FakeTensorMode():  # raises where the value of a tensor is needed
        sketch = DeviceSketch(PAIRS, slices, "cuda", world_size=4)
        for _ in range(2):
            sketch.update("policy/ref", *fake_cuda_batch(mask_dtype))
        packed = sketch.pack()
        sketch.reset()
        assert packed.device.type == "cuda"
        assert packed.shape == (packed_length(PAIRS, slices, 4),)


@pytest.mark.parametrize(
    "read",
    [
        lambda r, mask: r.sum().item(),
        lambda r, mask: r.masked_select(mask),
        lambda r, mask: bool(mask.any()),
        lambda r, mask: torch.bincount(mask.long().view(-1)),
    ],
    ids=["item", "masked_select", "if any", "bincount"],
)
def test_the_synchronisation_test_can_fail(read: object) -> None:
    with FakeTensorMode():
        r, _, mask = fake_cuda_batch(torch.bool)
        with pytest.raises((DataDependentOutputException, DynamicOutputShapeException)):
            read(r, mask)  # type: ignore[operator]


def test_nothing_is_copied_to_the_host(devices_seen: Callable[[], AbstractContextManager[set[str]]]) -> None:
    with FakeTensorMode():
        values = fake_cuda_batch(torch.float32)
        sketches = [DeviceSketch(PAIRS, slices, "cuda") for slices in (SLICES, tuple("abcdefghi"))]
        with devices_seen() as seen:
            for sketch in sketches:
                sketch.update("policy/ref", *values)
                sketch.has_tokens()
                sketch.pack()
        assert seen == {"cuda"}
        with devices_seen() as control:
            values[0].cpu()
        assert "cpu" in control
