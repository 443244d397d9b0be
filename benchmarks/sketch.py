"""What the sketch costs and how near its quantiles are, beside other ways to the same numbers; one run, one thread.

    OMP_NUM_THREADS=1 python benchmarks/sketch.py [--quick]

Times are process CPU time, the least of several runs; between workers, wall-clock time. Read the ratios, not the
absolutes. Other sketches are measured when installed: pip install datasketches ddsketch fastdigest
"""

from __future__ import annotations

import argparse
import importlib
import math
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from results import write_section

from foreshock.sketch import LogRatioSketch, filling, load_compiled
from foreshock.sketch.codec import decode, encode
from foreshock.sketch.device import DeviceSketch, packed_length, unpack

QUANTILES = (0.5, 0.9, 0.95, 0.99, 0.999)
SLICES = ("text_only", "post_tool")
TORCH_QUANTILE_LIMIT = 1 << 24


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer values and runs; for a look, not for the record")
    quick = parser.parse_args().quick
    torch.set_num_threads(1)
    start, reason = time.process_time(), load_compiled()
    if reason:
        raise SystemExit(f"The compiled code cannot be measured: {reason}")
    loading = time.process_time() - start
    text = "\n\n".join(
        (
            f"torch {torch.__version__}, NumPy {np.__version__}, numba {version('numba')}, one thread, process CPU "
            f"time, least of several runs. Loading the compiled code took {loading:.1f} s.",
            "### Full update: signed, masked, two slices, with all statistics\n\n" + updates(quick),
            "### Quantiles of |r| of one slice\n\n" + sketches(quick),
            "### Sums over tokens, derived when read\n\n" + sums(),
            "### Two gloo workers, wall-clock\n\n" + workers(quick),
            "### On disk\n\n" + records(),
        )
    )
    print(text)
    if not quick:
        write_section("sketch", "Sketch: speed, size and error", text)


def log_ratios(n: int, seed: int = 0) -> np.ndarray:
    """Heavy-tailed log-ratios with 35 % exact zeros, (n,) float32."""
    g = np.random.default_rng(seed)
    values = 0.05 * g.standard_t(3, n) * np.exp(g.normal(0, 0.5, n))
    return np.where(g.random(n) < 0.35, 0, values).astype(np.float32)


def least(call: Callable[[], object], seconds: float, runs: int = 3) -> float:
    """The least CPU time of one call, in seconds; at least `runs` calls, then as many as fit."""
    best, end = math.inf, time.perf_counter() + seconds
    while runs > 0 or time.perf_counter() < end:
        start = time.process_time()
        call()
        best = min(best, time.process_time() - start)
        runs -= 1
    return best


@contextmanager
def numpy_alone() -> Iterator[None]:
    """Without the compiled code, as in a process that has not loaded it."""
    code, filling._compiled = filling._compiled, None
    try:
        yield
    finally:
        filling._compiled = code


def updates(quick: bool) -> str:
    large = torch.from_numpy(log_ratios(10_000_000))
    floor = least(lambda: large.sum(), 0.1 if quick else 1) / large.numel()
    rows = [
        "The same job for each: a batch (B, 512) of signed log-ratios with slice ids and a mask, from which quantiles "
        "of r and of |r| can be read per slice. Ours also keeps NaN, ±inf, exact extremes and means, and the ratio of "
        "each sequence. The other sketches get the response tokens of each slice, selected by mask and slice, and "
        "nothing else; the sort gives quantiles only. The last two columns say how many times the time of ours each "
        f"takes. Reading 10⁷ values (`torch.sum`) takes {floor * 1e9:.2f} ns/value.",
        "",
        "| method | tokens | µs | ns/token | ns/response token | against compiled | against torch |",
        "|---|---|---|---|---|---|---|",
    ]
    for batch, length in ((2048, 512), (128, 512), (8, 512)):
        n, g = batch * length, np.random.default_rng(1)
        r = torch.from_numpy(log_ratios(n).reshape(batch, length))
        # A row: text, from some place on behind a tool's result, and padding at the end.
        column = np.arange(length)
        ids = torch.from_numpy(column > g.integers(50, 400, (batch, 1)))  # booleans, as TokenBatch.slice_ids gives them
        mask = torch.from_numpy(column < g.integers(200, 512, (batch, 1)))
        calls = update_methods(r, ids, mask, with_others=batch == 2048)
        times = {name: least(call, 0.2 if quick else 3) for name, call in calls.items()}
        response, compiled, plain = int(mask.sum()), times[COMPILED], times[TORCH]
        for name, took in times.items():
            rows.append(
                f"| {name} | {n:,} | {took * 1e6:,.0f} | {took / n * 1e9:.2f} | {took / response * 1e9:.2f} "
                f"| {took / compiled:.1f}× | {took / plain:.1f}× |"
            )
    return "\n".join(rows)


COMPILED, NUMPY, TORCH = "LogRatioSketch, compiled", "LogRatioSketch, NumPy", "DeviceSketch, torch on the CPU"


def update_methods(
    r: torch.Tensor, ids: torch.Tensor, mask: torch.Tensor, with_others: bool
) -> dict[str, Callable[[], object]]:
    """Each way to take in one batch, (B, T)."""
    device, sketch = DeviceSketch(("policy/ref",), SLICES, "cpu"), LogRatioSketch(SLICES)
    host = r.numpy(), ids.numpy(), mask.numpy()

    def with_numpy() -> None:
        with numpy_alone():
            sketch.update(*host)

    def slices() -> list[np.ndarray]:
        return [host[0][host[2] & (host[1] == i)] for i in range(len(SLICES))]

    found: dict[str, Callable[[], object]] = {
        "`torch.sum`: the read floor": lambda: r.sum(),
        COMPILED: lambda: sketch.update(*host),
        NUMPY: with_numpy,
        TORCH: lambda: device.update("policy/ref", r, ids, mask),
        "sort of each slice": lambda: [r[mask & (ids == i)].sort().values for i in range(len(SLICES))],
    }
    if with_others:
        for name, *_, build in methods()[3:]:
            found[name] = lambda build=build: [build(values) for values in slices()]
    return found


def sketches(quick: bool) -> str:
    n = 1 << (20 if quick else 22)
    assert n < TORCH_QUANTILE_LIMIT
    values = np.abs(log_ratios(n))
    exact = np.quantile(values, QUANTILES, method="inverted_cdf")
    rows = [
        f"{n:,} values; ours also keeps all that the full update keeps. Errors are in per cent of the exact value at "
        "p50 / p90 / p95 / p99 / p99.9.",
        "",
        "| method | ns/value | against compiled | against torch | bytes | merges | error % |",
        "|---|---|---|---|---|---|---|",
    ]
    parts = {name: values[: n // size] for name, _, size, _ in methods()}
    times = {
        name: least(lambda build=build, part=parts[name]: build(part), 0.2 if quick else 2, runs=1) / parts[name].size
        for name, _, _, build in methods()
    }
    for name, merges, size, build in methods():
        truth = exact if size == 1 else np.quantile(parts[name], QUANTILES, method="inverted_cdf")
        found, n_bytes = build(parts[name])
        error = " / ".join(f"{abs(a - b) / b * 100:.2f}" for a, b in zip(found, truth, strict=True))
        took = times[name]
        rows.append(
            f"| {name} | {took * 1e9:,.1f} | {took / times[COMPILED]:.1f}× | {took / times[TORCH]:.1f}× "
            f"| {n_bytes:,} | {merges} | {error} |"
        )
    missing = [name for name in ("datasketches", "ddsketch", "fastdigest") if load(name) is None]
    if missing:
        rows += ["", f"Not measured, because not installed: pip install {' '.join(missing)}"]
    return "\n".join(rows)


def load(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


Built = tuple[list[float], int]  # the quantiles, and the bytes that the summary takes


def methods() -> list[tuple[str, str, int, Callable[[np.ndarray], Built]]]:
    """Name, whether it merges, by what to divide the number of values, and the function that builds the summary."""
    found: list[tuple[str, str, int, Callable[[np.ndarray], Built]]] = [
        (COMPILED, "exactly", 1, by_host_sketch),
        (NUMPY, "exactly", 1, by_numpy_sketch),
        (TORCH, "exactly", 1, by_device_sketch),
        ("`torch.quantile`, keeps all values", "no", 1, by_torch_quantile),
        ("`np.quantile`, keeps all values", "no", 1, by_numpy_quantile),
    ]
    if (ds := load("datasketches")) is not None:
        for k in (200, 2000):
            found.append((f"datasketches KLL, k = {k}", "in rank error", 1, by_datasketch(ds.kll_floats_sketch, k)))
        found.append(("datasketches REQ, k = 50", "in rank error", 1, by_datasketch(ds.req_floats_sketch, 50)))
        found.append(("datasketches t-digest, k = 200", "by order", 1, by_datasketch(ds.tdigest_float, 200)))
    if (fast := load("fastdigest")) is not None:
        found.append(("fastdigest t-digest, 1,000 centroids", "by order", 4, by_fastdigest(fast)))
    if (dd := load("ddsketch")) is not None:
        found.append(("ddsketch, 0.775 % (pure Python)", "exactly", 64, by_ddsketch(dd)))
    return found


def by_device_sketch(values: np.ndarray) -> Built:
    sketch = DeviceSketch(("p",), ("all",), "cpu")
    r = torch.from_numpy(values).view(-1, 512)
    sketch.update("p", r, ZEROS[: r.shape[0]], ONES[: r.shape[0]])
    done = unpack(sketch.pack().numpy(), ("p",), ("all",))["p"]
    return [done.quantile(q, "all").value for q in QUANTILES], packed_length(("p",), ("all",), 1) * 8


def by_numpy_sketch(values: np.ndarray) -> Built:
    with numpy_alone():
        return by_host_sketch(values)


def by_host_sketch(values: np.ndarray) -> Built:
    sketch = LogRatioSketch(("all",))
    sketch.update(values, ZEROS.numpy().ravel()[: values.size])
    return [sketch.quantile(q, "all").value for q in QUANTILES], sketch.counts.nbytes + sketch.fractions.nbytes


ZEROS = torch.zeros(1 << 13, 512, dtype=torch.int64)
ONES = torch.ones(1 << 13, 512, dtype=torch.bool)


def by_torch_quantile(values: np.ndarray) -> Built:
    q = torch.tensor(QUANTILES, dtype=torch.float32)
    return torch.quantile(torch.from_numpy(values), q, interpolation="higher").tolist(), values.nbytes


def by_numpy_quantile(values: np.ndarray) -> Built:
    return np.quantile(values, QUANTILES, method="inverted_cdf").tolist(), values.nbytes


def by_datasketch(kind: Callable[[int], object], k: int) -> Callable[[np.ndarray], Built]:
    def build(values: np.ndarray) -> Built:
        sketch = kind(k)
        sketch.update(values)
        return [sketch.get_quantile(q) for q in QUANTILES], len(sketch.serialize())

    return build


def by_fastdigest(module: ModuleType) -> Callable[[np.ndarray], Built]:
    def build(values: np.ndarray) -> Built:
        digest = module.TDigest.from_values(values.astype(np.float64))
        return [digest.quantile(q) for q in QUANTILES], 16 * digest.n_centroids

    return build


def by_ddsketch(module: ModuleType) -> Callable[[np.ndarray], Built]:
    def build(values: np.ndarray) -> Built:
        sketch = module.DDSketch(1 / 129)
        for value in values.tolist():
            sketch.add(value)
        return [sketch.get_quantile_value(q) for q in QUANTILES], 8 * len(sketch._store.bins)

    return build


def ess_share(r: np.ndarray, cap: float = math.inf) -> float:
    """ESS/n of w = e^min(r, cap), from every token."""
    w = np.exp(np.minimum(r, cap))
    return float(w.sum() ** 2 / (w.size * (w * w).sum()))


def sums() -> str:
    """Relative errors against float64 sums over the same tokens, of the sketch and of what its record reads."""
    rows = ["| tokens | | E[w²] | χ² | k3 | ESS/n | ESS/n, cap 3 |", "|---|---|---|---|---|---|---|"]
    for n in (1_300, 13_000, 1 << 20):
        values = log_ratios(n)
        r = values.astype(np.float64)
        exact = [
            np.exp(2 * r).mean(),
            (np.expm1(r) ** 2).mean(),
            (np.expm1(-r) + r).mean(),
            ess_share(r),
            ess_share(r, 3),
        ]
        sketch = LogRatioSketch(("all",))
        sketch.update(values, np.zeros(n, np.int8))
        for name, one in (("sketch", sketch), ("its record", decode(encode(sketch)))):
            reads = [one.second_moment("all"), one.chi2("all"), one.kl_k3("all"), one.ess_share("all")]
            found = [read.value for read in (*reads, one.ess_share("all", 3))]
            errors = " | ".join(f"{abs(a / b - 1):.0e}" for a, b in zip(found, exact, strict=True))
            rows.append(f"| {n:,} | {name} | {errors} |")
    return "\n".join(rows)


def workers(quick: bool) -> str:
    n = 100_000
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(merge_both_ways, (folder, n, 5 if quick else 30), nprocs=2)
        latency, sketch, gather = (float(x) for x in Path(folder, "times").read_text().split())
    size = packed_length(("policy/ref",), SLICES, 2) * 8
    return "\n".join(
        (
            "| method | ms | bytes sent by a worker |",
            "|---|---|---|",
            f"| all-reduce of one number: the latency floor | {latency * 1e3:.2f} | 8 |",
            f"| pack, one SUM all-reduce, unpack | {sketch * 1e3:.2f} | {size:,} |",
            f"| all_gather of {n:,} tokens a worker, sort each slice | {gather * 1e3:.1f} | {n * 5:,} |",
        )
    )


def merge_both_ways(rank: int, folder: str, n: int, runs: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    r = torch.from_numpy(log_ratios(n, seed=rank)).view(-1, 500)
    ids, pair = torch.arange(r.numel()).view(r.shape) % 2, ("policy/ref",)
    device = DeviceSketch(pair, SLICES, "cpu", rank=rank, world_size=2)
    device.update(pair[0], r, ids, torch.ones_like(r, dtype=torch.bool))

    def by_sketch() -> None:
        packed = device.pack()
        dist.all_reduce(packed)
        unpack(packed.numpy(), pair, SLICES, 2)

    def by_gather() -> None:
        all_r = [torch.empty_like(r) for _ in range(2)]
        all_ids = [torch.empty(r.shape, dtype=torch.int8) for _ in range(2)]
        dist.all_gather(all_r, r)
        dist.all_gather(all_ids, ids.to(torch.int8))
        joined, joined_ids = torch.cat(all_r), torch.cat(all_ids)
        for i in range(len(SLICES)):
            joined[joined_ids == i].abs().sort()

    times = [least_wall(call, runs) for call in (lambda: dist.all_reduce(torch.ones(1)), by_sketch, by_gather)]
    if rank == 0:
        Path(folder, "times").write_text(" ".join(map(str, times)))
    dist.destroy_process_group()


def least_wall(call: Callable[[], object], runs: int) -> float:
    best = math.inf
    for _ in range(runs):
        dist.barrier()
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best


def records() -> str:
    slices = ("text_only", "post_tool", "search")
    sketches = []
    for pair in range(2):
        sketch = LogRatioSketch(slices)
        for step in range(10):
            for i in range(len(slices)):
                values = log_ratios(1_300, seed=1_000 * pair + 10 * step + i)
                sketch.update(values, np.full(values.shape, i))
        sketches.append(sketch)
    texts = [encode(sketch) for sketch in sketches]
    write, read = least(lambda: [encode(x) for x in sketches], 0.5), least(lambda: [decode(x) for x in texts], 0.5)
    return (
        "A block of two pairs, three slices and ten steps of 1,300 tokens a slice: "
        f"{sum(map(len, texts)):,} bytes of text, written in {write * 1e3:.1f} ms and read in {read * 1e3:.1f} ms."
    )


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
