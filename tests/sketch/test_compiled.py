from __future__ import annotations

import pickle
import subprocess
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foreshock.sketch import LogRatioSketch, filling, load_compiled
from foreshock.sketch.buckets import EDGES
from foreshock.sketch.codec import decode, encode

EXACT = ("counts", "fractions", "tallies", "extremes", "masked", "outside")
NEXT_TO_EDGES = np.nextafter(EDGES[::97].astype(np.float32), np.float32(0))
SPECIAL = [0.0, -0.0, 1e-30, -1e-30, 1e-45, 80, -80, 300, -300, 3e38, np.nan, -np.nan, np.inf, -np.inf, *NEXT_TO_EDGES]
LAYOUTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "as it is": lambda x: x,
    "by columns": np.asfortranarray,
    "every other": lambda x: np.repeat(x, 2, axis=-1)[..., ::2],
    "backwards": lambda x: x[::-1].copy()[::-1],
    "read-only": lambda x: np.frombuffer(x.tobytes(), x.dtype).reshape(x.shape),
    "unaligned": lambda x: np.frombuffer(b"." + x.tobytes(), x.dtype, offset=1).reshape(x.shape),
    "other byte order": lambda x: x.astype(x.dtype.newbyteorder()),
}


@pytest.fixture(autouse=True)
def loaded() -> Any:
    """Compiled code for each test of this module, and NumPy again after it."""
    assert load_compiled() == ""
    yield
    filling._compiled = None


def both(*batches: tuple[Any, ...], slices: tuple[str, ...] = ("text_only", "post_tool")) -> LogRatioSketch:
    """What compiled code counts, checked against NumPy."""
    compiled, plain = LogRatioSketch(slices), LogRatioSketch(slices)
    for values in batches:
        compiled.update(*values)
    code, filling._compiled = filling._compiled, None
    for values in batches:
        plain.update(*values)
    filling._compiled = code
    for name in EXACT:
        assert np.array_equal(getattr(compiled, name), getattr(plain, name)), name
    np.testing.assert_allclose(compiled.sequences, plain.sequences, rtol=1e-12)
    return compiled


def log_ratios(g: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Heavy-tailed log-ratios, a third of them 0, with every special value among them."""
    values = (g.standard_t(2, shape) * 0.3).astype(np.float32)
    values[g.random(shape) < 0.35] = 0
    odd = g.random(shape) < 0.1
    values[odd] = g.choice(SPECIAL, int(odd.sum()))
    return values


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    shape=st.one_of(st.tuples(st.integers(0, 300)), st.tuples(st.integers(0, 40), st.integers(0, 40))),
    size=st.sampled_from([1, 2, 3, 64]),
    kind=st.sampled_from(["f2", "f4", "f8"]),
    id_kind=st.sampled_from(["i1", "i4", "i8", "u1", "u8"]),
    mask_kind=st.sampled_from(["?", "i8", "f4", "u1"]),
    layout=st.sampled_from(sorted(LAYOUTS)),
    rows=st.booleans(),
)
def test_it_counts_as_numpy_does(
    seed: int,
    shape: tuple[int, ...],
    size: int,
    kind: str,
    id_kind: str,
    mask_kind: str,
    layout: str,
    rows: bool,
) -> None:
    g = np.random.default_rng(seed)
    with np.errstate(over="ignore", under="ignore"):
        values = log_ratios(g, shape).astype(kind)
    mask = g.random(shape) < g.choice([0, 0.7, 1])
    ids = np.where(mask, g.integers(0, size, shape), g.integers(0, 128, shape))  # a masked id may be anything
    arrays = [LAYOUTS[layout](x) for x in (values, ids.astype(id_kind), mask.astype(mask_kind))]
    sequence_ids = [g.integers(0, 5, shape)] if rows else []
    both((*arrays, *sequence_ids), slices=tuple(f"tool_{i}" for i in range(size)))


@pytest.mark.parametrize("shape", [(0,), (0, 5), (5, 0), (1, 1), (300_000, 1), (3, 300_000), (600, 1_000)])
def test_shapes(shape: tuple[int, ...]) -> None:
    g = np.random.default_rng(0)
    ids = np.arange(int(np.prod(shape))).reshape(shape) % 2 == 1
    both((log_ratios(g, shape), ids, g.random(shape) < 0.7), (log_ratios(g, shape), ids))


def test_lists_and_torch_tensors() -> None:
    torch = pytest.importorskip("torch")
    g = np.random.default_rng(1)
    values, ids, mask = (
        torch.from_numpy(log_ratios(g, (20, 30))),
        torch.ones(20, 30, dtype=torch.int8),
        torch.ones(20, 30),
    )
    for kind in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        both((values.to(kind), ids, mask), (values.to(kind).T, ids.T, mask.T))
    both((values.tolist(), ids.tolist(), mask.tolist()))


def test_special_values_raise_no_warning() -> None:
    values = np.array([SPECIAL, SPECIAL, SPECIAL], np.float32)
    mask = np.array([[1.0], [1.0], [0.0]]).repeat(len(SPECIAL), 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sketch = both((values, np.zeros(values.shape, int), mask))
    assert sketch.tally("text_only") == {"nan": 4, "pos_inf": 2, "neg_inf": 2}
    assert sketch.masked == len(SPECIAL)


def test_many_updates_add_up() -> None:
    g = np.random.default_rng(2)
    batches = [(log_ratios(g, (8, 50)), g.integers(0, 2, (8, 50)), g.random((8, 50)) < 0.5) for _ in range(5)]
    both(*batches)


def test_updates_use_it_once_it_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filling, "_count_slice", None)  # what NumPy would have to call
    sketch = LogRatioSketch()
    sketch.update(np.ones(3), np.ones(3, int))
    assert sketch.n("post_tool") == 3
    filling._compiled = None
    with pytest.raises(TypeError):
        sketch.update(np.ones(3), np.ones(3, int))


@pytest.mark.parametrize(
    ("prepare", "reason"),
    [
        ("sys.modules['numba'] = None", "ModuleNotFoundError"),
        ("import numba; numba.njit = lambda *a, **k: 1 / 0", "ZeroDivisionError"),
    ],
    ids=["not installed", "does not compile"],
)
def test_without_it_numpy_counts_on(prepare: str, reason: str) -> None:
    code = (
        f"import sys; {prepare}\n"
        "from foreshock.sketch import LogRatioSketch, load_compiled\n"
        "print(load_compiled())\n"
        "sketch = LogRatioSketch(); sketch.update([0.5], [1]); print(sketch.n('post_tool'))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    told, n = done.stdout.splitlines()
    assert told.startswith(reason)
    assert n == "1"


def test_numba_is_not_loaded_before_it_is_asked_for() -> None:
    code = (
        "import sys; from foreshock.sketch import LogRatioSketch\n"
        "LogRatioSketch().update([0.5], [1]); sys.exit('numba' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_sketch_that_was_read_or_merged_goes_on() -> None:
    sketch = LogRatioSketch()
    sketch.update([0.5, -2.0], [1, 0])
    for other in (decode(encode(sketch)), LogRatioSketch.merged([sketch, sketch]), pickle.loads(pickle.dumps(sketch))):
        n = other.n("post_tool")
        other.update([[0.25, 3.0]], [[1, 1]])
        assert other.n("post_tool") == n + 2
