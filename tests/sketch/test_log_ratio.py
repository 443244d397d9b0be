from __future__ import annotations

import math
import subprocess
import sys
import warnings
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foreshock.errors import InputError, LayoutError
from foreshock.sketch import LogRatioSketch, filling
from foreshock.sketch.buckets import N_CELLS, RELATIVE_ERROR, REPRESENTATIVES
from foreshock.stats.tail import hill_index, pareto_k

SLICES = ("text_only", "post_tool")
BOUND = RELATIVE_ERROR * (1 + 1e-6)  # float32 rounding of the value itself aside


def k3(r: np.ndarray) -> np.ndarray:
    return np.expm1(-np.asarray(r, np.float64)) + r


def ess_share(r: np.ndarray, cap: float = math.inf) -> float:
    capped = np.minimum(np.asarray(r, np.float64), cap)
    w = np.exp(capped - capped.max())
    return float(w.sum() ** 2 / (w.size * (w * w).sum()))


def t3(n: int) -> np.ndarray:
    return (0.1 * np.random.default_rng(0).standard_t(3, n)).astype(np.float32)


def sketch_of(values: np.ndarray, slice_id: int = 1) -> LogRatioSketch:
    sketch = LogRatioSketch()
    sketch.update(values, np.full(values.shape, slice_id))
    return sketch


@pytest.mark.parametrize("n", [1, 2, 10, 1_000, 30_000])
def test_quantiles_are_within_the_promised_error(draw: Callable[[int], np.ndarray], n: int) -> None:
    values = draw(n)
    sketch = sketch_of(values)
    for q in (0.0, 0.01, 0.25, 0.5, 0.9, 0.95, 0.99, 0.999, 1.0):
        exact = np.quantile(np.abs(values.astype(np.float64)), q, method="inverted_cdf")
        got = sketch.quantile(q, "post_tool")
        assert got.n == n
        if 1e-6 <= exact <= 100:
            assert abs(got.value - exact) <= BOUND * exact <= 0.0078 * exact
        else:
            assert abs(got.value - exact) < 1e-6
        signed = np.quantile(values.astype(np.float64), q, method="inverted_cdf")
        assert abs(sketch.signed_quantile(q, "post_tool").value - signed) <= BOUND * abs(signed) + 1e-6


def test_extremes_are_exact() -> None:
    values = np.array([-0.123456, 0.3, 77.7, -99.9], np.float32)
    sketch = sketch_of(values)
    assert sketch.extremes[1].tolist() == [-values[3], values[2]]
    assert sketch.quantile(1, "post_tool").value == -values[3]
    assert sketch.signed_quantile(1, "post_tool").value == values[2]
    assert sketch.signed_quantile(0, "post_tool").value == values[3]


@pytest.mark.parametrize("sign", [-1, 1])
def test_signed_quantiles_of_one_sign_only(sign: int) -> None:
    sketch = sketch_of(sign * np.array([300, 0.7, 0.1], np.float32))
    found = [sketch.signed_quantile(q, "post_tool").value for q in (0, 0.5, 1)]
    assert found == pytest.approx(sorted(sign * np.array([300, 0.7, 0.1])), rel=0.0078)
    assert sign * 300 in found


def test_moments_against_direct_sums() -> None:
    values = t3(20_000).astype(np.float64)
    sketch = sketch_of(values)
    n = values.size
    w = np.exp(values)
    r = np.where(np.abs(values) < 2**-20, 0, values)
    assert sketch.mean("post_tool").value == pytest.approx(r.mean(), rel=1e-12)
    assert sketch.kl_k1("post_tool").value == pytest.approx(r.mean(), rel=1e-12)
    assert sketch.kl_k1("post_tool", "denominator").value == pytest.approx(-r.mean(), rel=1e-12)
    assert sketch.second_moment("post_tool").value == pytest.approx((w * w).mean(), rel=1e-6)
    assert sketch.chi2("post_tool").value == pytest.approx(((w - 1) ** 2).mean(), rel=1e-5)
    assert sketch.kl_k3("post_tool").value == pytest.approx(k3(values).mean(), rel=1e-5)
    assert sketch.kl_k3("post_tool", "denominator").value == pytest.approx(k3(-values).mean(), rel=1e-5)
    assert sketch.ess_share("post_tool", 3).value == pytest.approx(ess_share(values, 3), rel=1e-6)
    assert sketch.ess_share("post_tool", math.log(2)).value == pytest.approx(ess_share(values, math.log(2)), rel=1e-6)
    assert sketch.ess_share("post_tool").value == pytest.approx(ess_share(values), rel=1e-6)
    assert sketch.ess_share("post_tool").n == n


@pytest.mark.parametrize("n", [1, 30, 30_000])
@pytest.mark.parametrize(("limit", "bound"), [(1, 1e-4), (10, 1e-3)])
def test_derived_sums_are_within_the_promised_error(
    draw: Callable[[int], np.ndarray], n: int, limit: float, bound: float
) -> None:
    drawn = np.clip(draw(n), -limit, limit)
    sketch, values = sketch_of(drawn), drawn.astype(np.float64)
    w = np.exp(values)
    for got, exact in (
        (sketch.second_moment("post_tool"), (w * w).mean()),
        (sketch.chi2("post_tool"), (np.expm1(values) ** 2).mean()),
        (sketch.kl_k3("post_tool"), k3(values).mean()),
        (sketch.kl_k3("post_tool", "denominator"), k3(-values).mean()),
        (sketch.ess_share("post_tool"), ess_share(values)),
        (sketch.ess_share("post_tool", 3), ess_share(values, 3)),
        (sketch.ess_share("post_tool", math.log(2)), ess_share(values, math.log(2))),
    ):
        assert got.value == pytest.approx(exact, rel=bound, abs=1e-12)
    assert sketch.mean("post_tool").value == pytest.approx(values.mean(), rel=1e-12, abs=2.0**-20)


def test_a_lone_token_in_each_bucket_is_exact() -> None:
    values = np.array([-3.3, -0.123, 0.456, 1.789, 7.5], np.float32)
    sketch, r = sketch_of(values), values.astype(np.float64)
    assert sketch.second_moment("post_tool").value == pytest.approx(np.exp(2 * r).mean(), rel=1e-14)
    assert sketch.kl_k3("post_tool").value == pytest.approx(k3(r).mean(), rel=1e-14)
    assert sketch.ess_share("post_tool", 3).value == pytest.approx(ess_share(r, 3), rel=1e-14)


def test_k3_keeps_its_digits_when_the_policies_are_close() -> None:
    values = (1e-4 * np.random.default_rng(0).standard_normal(50_000)).astype(np.float32).astype(np.float64)
    exact = (values**2 / 2 - values**3 / 6 + values**4 / 24).mean()
    assert sketch_of(values).kl_k3("post_tool").value == pytest.approx(exact, rel=1e-5)


@pytest.mark.parametrize(("size", "counted"), [(80.0, 80.0), (300.0, 128.0), (3e38, 128.0)])
def test_sums_do_not_overflow(size: float, counted: float) -> None:
    sketch = sketch_of(np.array([size, 0.0, -size]))
    assert sketch.mean("post_tool").value == 0
    assert sketch.second_moment("post_tool").value == pytest.approx(math.exp(2 * counted) / 3, rel=1e-12)
    assert sketch.ess_share("post_tool").value == pytest.approx(1 / 3, rel=1e-9)
    assert sketch.kl_k3("post_tool").value == pytest.approx(math.exp(counted) / 3, rel=1e-9)
    assert sketch.extremes[1].tolist() == [np.float32(size)] * 2


@pytest.mark.parametrize("cap", [math.log(2), 3, 1.5, 0])
def test_caps_limit_the_largest_ratios(cap: float) -> None:
    values = np.concatenate((np.zeros(1_000), [12.0]))
    assert sketch_of(values).ess_share("post_tool", cap).value == pytest.approx(ess_share(values, cap), rel=1e-9)


@pytest.mark.parametrize("cap", [-1.0, math.nan, -math.inf])
def test_a_cap_that_is_none_is_refused(cap: float) -> None:
    with pytest.raises(InputError, match=r"cap: got .*, expected nats of at least 0"):
        sketch_of(np.zeros(3)).ess_share("post_tool", cap)


def test_ess_without_a_cap_warns_of_a_heavy_tail_only() -> None:
    g = np.random.default_rng(1)
    heavy = sketch_of(np.log1p(g.pareto(0.9, 20_000))).ess_share("post_tool")  # ratios with tail index 1.1
    assert not heavy.ok
    assert 0 < heavy.value < 1
    assert "Pareto" in heavy.reason
    light = sketch_of(g.normal(0, 0.05, 20_000))
    assert light.ess_share("post_tool").ok
    assert sketch_of(np.log1p(g.pareto(0.9, 20_000))).ess_share("post_tool", 3).ok


def test_ratios_close_to_zero_keep_their_effective_sample_size() -> None:
    values = np.array([-80.0] * 99 + [-79.0])
    assert sketch_of(values).ess_share("post_tool").value == pytest.approx(ess_share(values), rel=1e-9)


def test_sequence_ratio_is_the_geometric_mean_over_the_row() -> None:
    values = np.array([[0.1, 0.3, 9.0], [-0.2, 0.5, 0.1], [7.0, 7.0, 7.0]], np.float32)
    ids = np.array([[0, 0, 0], [0, 1, 1], [0, 0, 0]])
    mask = np.array([[1, 1, 0], [1, 1, 1], [0, 0, 0]])
    sketch = LogRatioSketch()
    sketch.update(values, ids, mask)
    w = np.exp([0.2, -0.2])
    assert sketch.sequence_ess_share("text_only").n == 2
    assert sketch.sequence_ess_share("text_only").value == pytest.approx(w.sum() ** 2 / (2 * (w**2).sum()), rel=1e-6)
    assert sketch.sequence_ess_share("post_tool").n == 1
    assert sketch.sequence_ess_share("post_tool").value == pytest.approx(1)
    flat = LogRatioSketch()
    order = np.random.default_rng(0).permutation(9)
    rows = np.repeat(np.array([5, 0, 2], np.uint8), 3)
    flat.update(values.ravel()[order], ids.ravel()[order], mask.ravel()[order], sequence_ids=rows[order])
    np.testing.assert_allclose(flat.sequences, sketch.sequences, rtol=1e-12)
    unknown = LogRatioSketch()
    unknown.update(values.ravel(), ids.ravel(), mask.ravel())
    assert not unknown.sequence_ess_share("text_only").ok


def test_every_token_is_counted_somewhere() -> None:
    values = np.array([[np.nan, np.inf, -np.inf, 0.0], [1e-30, -300, 5, np.nan]], np.float32)
    ids = np.array([[0, 0, 1, 1], [0, 1, 99, -7]])
    mask = np.array([[1, 1, 1, 1], [1, 1, 0, 0]])
    for kind in (np.bool_, np.int64, np.float32):
        sketch = LogRatioSketch()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            sketch.update(values, ids, mask.astype(kind))
        assert sketch.tally("text_only") == {"nan": 1, "pos_inf": 1, "neg_inf": 0}
        assert sketch.tally("post_tool") == {"nan": 0, "pos_inf": 0, "neg_inf": 1}
        assert (sketch.n("text_only"), sketch.n("post_tool"), sketch.masked) == (1, 2, 2)
        assert sketch.alpha().value == pytest.approx(3 / 6)


def test_only_special_values() -> None:
    sketch = sketch_of(np.array([[np.nan, np.inf]]))
    assert sketch.n("post_tool") == 0
    assert "1 nan, 1 pos_inf" in sketch.quantile(0.5, "post_tool").reason
    assert sketch.extremes[1].tolist() == [0, 0]


def test_every_read_of_an_empty_slice_is_nan_with_a_reason() -> None:
    sketch = sketch_of(np.array([0.5]), slice_id=0)
    for read in (
        sketch.quantile(0.5, "post_tool"),
        sketch.signed_quantile(0.5, "post_tool"),
        sketch.tail_mass(1, "post_tool"),
        sketch.excess(1, "post_tool"),
        sketch.mean("post_tool"),
        sketch.kl_k1("post_tool"),
        sketch.kl_k3("post_tool"),
        sketch.second_moment("post_tool"),
        sketch.chi2("post_tool"),
        sketch.ess_share("post_tool"),
        sketch.sequence_ess_share("post_tool"),
        sketch.hill("post_tool"),
        sketch.pareto_k("post_tool"),
        LogRatioSketch().second_moment_share("post_tool"),
        LogRatioSketch().alpha(),
        LogRatioSketch(("a", "b")).alpha(),
        LogRatioSketch(("post_tool",)).alpha(),
    ):
        assert math.isnan(read.value)
        assert read.reason
    nothing = sketch.ecdf("post_tool")
    assert (nothing.values.size, nothing.shares.size, nothing.n) == (0, 0, 0)
    assert nothing.reason == "no token in slice post_tool"


@pytest.mark.parametrize("shape", [(0,), (0, 5), (5, 0), (1, 1), (3, 1)])
def test_small_shapes(shape: tuple[int, ...]) -> None:
    sketch = LogRatioSketch()
    sketch.update(np.zeros(shape), np.zeros(shape, int), np.ones(shape))
    assert sketch.n("text_only") == math.prod(shape)
    sketch.update(np.zeros(shape), np.zeros(shape, int), np.zeros(shape))
    assert sketch.masked == math.prod(shape)


def test_tail_mass_and_ecdf() -> None:
    values = t3(10_000)
    sketch = sketch_of(values)
    assert sketch.tail_mass(0.25, "post_tool").value == np.mean(np.abs(values) >= 0.25)  # 0.25 is an edge
    assert sketch.tail_mass(0, "post_tool").value == np.mean(np.abs(values) >= 2.0**-20)
    found = sketch.ecdf("post_tool")
    x, share = found.values, found.shares
    assert (found.n, found.reason) == (10_000, "")
    assert share[-1] == 1
    assert (np.diff(x) > 0).all()
    exact = np.searchsorted(np.sort(np.abs(values)), x * (1 + 0.0078)) / values.size
    assert (share <= exact + 1e-12).all()


def test_excess_over_a_value() -> None:
    values = t3(10_000)
    for threshold in (0, 0.25, 1.3):
        exact = np.maximum(np.abs(values.astype(np.float64)) - threshold, 0).mean()
        assert sketch_of(values).excess(threshold, "post_tool").value == pytest.approx(exact, rel=1e-3)
    with pytest.raises(InputError, match=r"threshold: got nan, expected nats of at least 0"):
        sketch_of(values).excess(math.nan, "post_tool")


def test_hill_and_second_moment_share() -> None:
    g = np.random.default_rng(0)
    values = 1e-3 * (1 + g.pareto(2.0, 50_000))
    assert sketch_of(values).hill("post_tool").value == pytest.approx(0.5, abs=0.05)
    few = sketch_of(values[:100]).hill("post_tool")
    assert math.isnan(few.value)
    assert "only 2 tokens" in few.reason
    sketch = sketch_of(np.zeros(10), 0)
    sketch.update(np.full(10, 1.0), np.ones(10, int))
    assert sketch.second_moment_share("post_tool").value == pytest.approx(math.e**2 / (1 + math.e**2))


@pytest.mark.parametrize("spread", [0.05, 0.3, 2.0])
def test_tail_indices_are_those_of_the_tokens_themselves(spread: float) -> None:
    """The cell in which a tail begins holds many tokens; dropping them would bias both indices downwards."""
    errors = []
    for seed in range(5):
        r = (spread * np.random.default_rng(seed).standard_normal(20_000)).astype(np.float32).astype(np.float64)
        found = [sketch_of(r).hill("post_tool"), sketch_of(r).pareto_k("post_tool")]
        tokens = [np.unique(values, return_counts=True) for values in (np.abs(r), np.exp(r))]
        exact = [hill_index(*tokens[0], top=400), pareto_k(*tokens[1], top=425)]
        assert [diagnostic.n for diagnostic in found] == [400, 425]
        errors.append([a.value - b.value for a, b in zip(found, exact, strict=True)])
    assert np.abs(np.mean(errors, 0)) == pytest.approx([0, 0], abs=0.01)


def test_slices_of_the_user_are_not_counted_twice() -> None:
    """A token of a user's slice is counted there and in its built-in slice."""
    sketch = LogRatioSketch((*SLICES, "search"))
    values, ids = np.array([0.0, 0.0, 0.0, 1.0, np.nan]), np.array([0, 0, 0, 1, 1])
    sketch.update(values, ids)
    sketch.update(values[3:], np.array([2, 2]))
    assert (sketch.alpha().value, sketch.alpha().n) == (2 / 5, 5)
    shares = [sketch.second_moment_share(name) for name in sketch.slices]
    tail = math.e**2 / (3 + math.e**2)
    assert [share.value for share in shares] == pytest.approx([1 - tail, tail, tail])
    assert shares[0].n == 4
    own = LogRatioSketch(("a", "b"))
    own.update(values, ids)
    assert own.second_moment_share("b").value == pytest.approx(tail)


def test_slices_up_to_64() -> None:
    names = tuple(f"tool_{i}" for i in range(64))
    sketch = LogRatioSketch(names)
    sketch.update(np.arange(640) / 10, np.arange(640) % 64)
    assert [sketch.n(name) for name in names] == [10] * 64
    for bad in ((), (*names, "one more"), ("a", "a"), (1, 2), "text_only"):
        with pytest.raises(InputError, match="1 to 64 distinct names"):
            LogRatioSketch(bad)


def test_wrong_layouts_name_both_sides() -> None:
    sketch = LogRatioSketch()
    with pytest.raises(LayoutError, match=r"slice_ids: got shape \(2, 3\), expected \(3, 2\)"):
        sketch.update(np.zeros((3, 2)), np.zeros((2, 3), int))
    with pytest.raises(LayoutError, match=r"mask: got shape \(3,\), expected \(4,\)"):
        sketch.update(np.zeros(4), np.zeros(4, int), np.ones(3))
    with pytest.raises(LayoutError, match=r"got shape \(1, 1, 1\), expected \(N,\) or \(B, T\)"):
        sketch.update(np.zeros((1, 1, 1)), np.zeros((1, 1, 1), int))
    with pytest.raises(InputError, match=r"slice_ids: got int\d+ from 0 to 2, expected integers from 0 to 1"):
        sketch.update(np.zeros(2), np.array([0, 2]))
    with pytest.raises(InputError, match="slice_ids: got float64"):
        sketch.update(np.zeros(2), np.zeros(2))
    with pytest.raises(LayoutError, match=r"got a sketch with slices \('a',\), expected \('text_only', 'post_tool'\)"):
        sketch.merge(LogRatioSketch(("a",)))
    with pytest.raises(InputError, match="expected one of"):
        sketch.n("tool")
    with pytest.raises(InputError, match="expected a share from 0 to 1"):
        sketch.quantile(99, "text_only")
    with pytest.raises(InputError, match="expected at least one"):
        LogRatioSketch.merged([])
    assert sketch == LogRatioSketch()


def test_a_refused_batch_changes_nothing() -> None:
    sketch = LogRatioSketch()
    ids = np.zeros((200, 1_000), int)
    ids[-1, -1] = 5
    with pytest.raises(InputError):
        sketch.update(np.zeros(ids.shape), ids)
    assert sketch == LogRatioSketch()


def token_level(sketch: LogRatioSketch) -> list[str]:
    """Every statistic that does not look at sequences, to the last bit."""
    return [
        repr(read)
        for name in sketch.slices
        for read in (
            sketch.n(name),
            sketch.tally(name),
            *(sketch.quantile(q, name) for q in (0, 0.5, 0.99, 1)),
            *(sketch.signed_quantile(q, name) for q in (0, 0.1, 0.99, 1)),
            sketch.tail_mass(0.1, name),
            sketch.mean(name),
            sketch.kl_k1(name),
            sketch.kl_k3(name),
            sketch.kl_k3(name, "denominator"),
            sketch.second_moment(name),
            sketch.second_moment_share(name),
            sketch.chi2(name),
            *(sketch.ess_share(name, cap) for cap in (math.log(2), 3, math.inf)),
            sketch.hill(name),
            sketch.pareto_k(name),
            sketch.alpha(),
            sketch.ecdf(name),
        )
    ]


@settings(max_examples=30, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(2, 6), st.integers(0, 400))
def test_any_sharding_and_merge_order_gives_the_same_sketch(rand: object, shards: int, n: int) -> None:
    seed = rand.randrange(2**32)  # type: ignore[attr-defined]
    g = np.random.default_rng(seed)
    values = (g.standard_t(2, (n, 3)) * 0.5).astype(np.float32)
    values[g.random(values.shape) < 0.02] = g.choice([np.nan, np.inf, -np.inf, 300, -80])
    ids, mask = g.integers(0, 2, values.shape), g.random(values.shape) < 0.8
    whole = LogRatioSketch()
    whole.update(values, ids, mask)
    owner = g.integers(0, shards, n)
    parts = []
    for shard in range(shards):
        part = LogRatioSketch()
        part.update(values[owner == shard], ids[owner == shard], mask[owner == shard])
        parts.append(part)
    rand.shuffle(parts)  # type: ignore[attr-defined]
    left = LogRatioSketch.merged(parts)
    right = LogRatioSketch()
    right.merge(LogRatioSketch.merged(parts[1:]))
    right.merge(parts[0])
    for merged in (left, right):
        for name in ("counts", "fractions", "tallies", "extremes", "masked"):
            assert np.array_equal(getattr(merged, name), getattr(whole, name))
        assert token_level(merged) == token_level(whole)
        np.testing.assert_allclose(merged.sequences, whole.sequences, rtol=1e-9)


def test_merging_leaves_the_inputs_alone() -> None:
    one, two = sketch_of(np.array([1.0])), sketch_of(np.array([2.0]))
    LogRatioSketch.merged([one, two])
    assert (one.n("post_tool"), two.n("post_tool")) == (1, 1)
    assert repr(one) == "LogRatioSketch(text_only: 0, post_tool: 1)"


def test_counts_follow_the_documented_layout() -> None:
    sketch = sketch_of(np.array([0.0, -1.0, 500.0]))
    assert sketch.counts.shape == (2, 2, N_CELLS)
    assert sketch.counts.dtype == np.int64
    assert sketch.counts[1, 1, 0] == 1
    assert sketch.counts[1, 1, N_CELLS - 1] == 1
    (cell,) = np.flatnonzero(sketch.counts[1, 0])
    assert REPRESENTATIVES[cell] == pytest.approx(1, rel=0.0078)


def test_lists_and_large_batches_are_chunked_alike() -> None:
    g = np.random.default_rng(2)
    values, ids = t3(100_000), g.integers(0, 2, 100_000)
    whole, pieces = LogRatioSketch(), LogRatioSketch()
    whole.update(values, ids)
    for start in range(0, 100_000, 33_333):
        pieces.update(values[start : start + 33_333].tolist(), ids[start : start + 33_333].tolist())
    assert whole == pieces


def test_a_chunk_longer_than_the_packed_sums_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    values = t3(1_234)
    whole = sketch_of(values)
    monkeypatch.setattr(filling, "MAX_PENDING", 100)
    assert sketch_of(values) == whole


def test_the_sketch_and_its_codec_do_not_load_torch() -> None:
    code = "import sys, foreshock.sketch.codec; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
