"""How often the rules over scalar series warn on healthy runs, how soon on runs that go wrong, and what they cost.

A run logs some twenty of TRL's keys in 300 rows. A live run is judged after every 10 rows and offline at the end, so
both are counted: a warning at any time, and one at the last row. The simulated runs are in series_runs.py.

    python benchmarks/series_rules.py            # about 9 minutes on one core; rewrites its section of results.md
    python benchmarks/series_rules.py --quick    # a tenth of the runs, prints only
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from types import ModuleType

import numpy as np
from results import write_section
from scipy import stats
from series_runs import FAILING, HEALTHY, LEVELS, LONG_ROWS, ONSET, Rng, Table, climbing, limited, stationary

from foreshock.diagnosis import diagnose_run
from foreshock.rules import OVER_SERIES, late_drift
from foreshock.run import Run, Series

TIMES = 30
"""How often a run is judged on its way, at equal distances."""

Judged = dict[str, tuple[int, int, bool]]


def judge(table: Table, rules: tuple[ModuleType, ...] = OVER_SERIES) -> Judged:
    """Return by rule: the row of its first warning (or more), that of its first critical finding, both 0 for none, and
    whether it warns at the end."""
    run, found = Run(), {rule.ID: (0, 0, False) for rule in rules}
    columns = dict(table)
    rows = len(next(iter(columns.values())))
    steps = columns.pop("step", np.arange(1, rows + 1)).astype(int)
    for row in range(rows):
        logged = {key: float(values[row]) for key, values in columns.items() if not np.isnan(values[row])}
        run.append_scalars(int(steps[row]), logged)
        if (row + 1) % (rows // TIMES):
            continue
        for rule in rules:
            severities = {finding.severity for finding in rule.check(run).findings} - {"note"}
            first, critical, _ = found[rule.ID]
            found[rule.ID] = (
                first or (row + 1 if severities else 0),
                critical or (row + 1 if "critical" in severities else 0),
                bool(severities),
            )
    return found


def upper(hits: int, runs: int) -> float:
    """The upper end of the 95 % Clopper–Pearson interval of a share."""
    return 1.0 if hits == runs else float(stats.beta.ppf(0.975, hits + 1, runs - hits))


def share(hits: int, runs: int) -> str:
    return f"{hits} ({hits / runs:.1%}, at most {upper(hits, runs):.1%})"


def false_alarms(runs: int, seed: int) -> str:
    lines = [
        f"Runs with a finding at or above a level, all rules together, of {runs} each, with the upper 95 % bound "
        "(Clopper–Pearson):",
        "",
        "| run | warning at any time | warning at the end | critical at any time |",
        "|---|---:|---:|---:|",
    ]
    by_rule: dict[str, Counter[str]] = {rule.ID: Counter() for rule in OVER_SERIES}
    for number, (name, make) in enumerate(HEALTHY.items()):
        counts = _count(name, make, runs, np.random.default_rng([seed, number]), by_rule)
        cells = (share(counts[column], runs) for column in ("any", "end", "critical"))
        lines.append(f"| {name} | {' | '.join(cells)} |")
    total = runs * len(HEALTHY)
    lines += [
        "",
        f"By rule, over all {total:,} healthy runs:",
        "",
        "| rule | warning at any time | at the end | critical | where |",
        "|---|---:|---:|---:|---|",
    ]
    for rule, counts in by_rule.items():
        critical = share(counts["critical"], total)
        where = ", ".join(f"{name} {counts[name]}" for name in HEALTHY if counts[name]) or "–"
        lines.append(f"| {rule} | {share(counts['any'], total)} | {counts['end']} | {critical} | {where} |")
    return "\n".join(lines)


def _count(
    name: str, make: Callable[[Rng], Table], runs: int, rng: Rng, by_rule: dict[str, Counter[str]]
) -> Counter[str]:
    counts: Counter[str] = Counter()
    for _ in range(runs):
        found = judge(make(rng))
        counts["any"] += any(first for first, _, _ in found.values())
        counts["end"] += any(end for _, _, end in found.values())
        counts["critical"] += any(critical for _, critical, _ in found.values())
        for rule, (first, critical, end) in found.items():
            by_rule[rule].update({"any": bool(first), "critical": bool(critical), "end": end, name: bool(first)})
    return counts


def detection(runs: int, seed: int) -> str:
    lines = [
        f"Failures that begin at row {ONSET} of runs with AR(1) noise (ρ = 0.5), {runs} runs each. The delay counts "
        "from there to the first warning of the rule; most of these failures take 120 rows to unfold.",
        "",
        "| failure | rule | found | critical | median delay (rows) | 90 % by | too early |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for number, (name, (levels, change, rule)) in enumerate(FAILING.items()):
        rng = np.random.default_rng([seed + 1, number])
        found = []
        for _ in range(runs):
            table = stationary(0.5, levels)(rng)
            change(table)
            found.append(judge(limited(table), (rule,))[rule.ID])
        lines.append(_detected(name, rule, found, 0 if "from the start" in name else ONSET))
    return "\n".join(lines)


def _detected(name: str, rule: ModuleType, found: list[tuple[int, int, bool]], onset: int) -> str:
    delays = [first - onset for first, _, _ in found if first > onset]
    early = sum(0 < first <= onset for first, _, _ in found)
    criticals = sum(bool(critical) for _, critical, _ in found)
    median, late = np.quantile(delays, [0.5, 0.9]) if delays else (np.nan, np.nan)
    return (
        f"| {name} | {rule.ID} | {len(delays) / len(found):.0%} | {criticals / len(found):.0%} | {median:.0f} | "
        f"{late:.0f} | {early} |"
    )


def long_runs(runs: int, seed: int) -> str:
    """The rule that needs a thousand rows, and all the others on long runs."""
    still, climbs = np.random.default_rng([seed + 2, 0]), np.random.default_rng([seed + 2, 1])
    lines = [f"Runs of {LONG_ROWS:,} rows, {runs} each, judged {TIMES} times:", ""]
    for name, rho in (("white noise", 0.0), ("AR(1), ρ = 0.9", 0.9)):
        judged = [judge(stationary(rho, LEVELS, LONG_ROWS)(still)) for _ in range(runs)]
        warned = sum(any(first for first, _, _ in found.values()) for found in judged)
        critical = sum(any(critical for _, critical, _ in found.values()) for found in judged)
        lines.append(f"- {name}: {share(warned, runs)} with a warning at any time, {critical} critical.")
    found = [judge(climbing(climbs), (late_drift,))[late_drift.ID] for _ in range(runs)]
    firsts = [first for first, _, _ in found if first]
    lines.append(
        f"- gradient norm and clip fraction double between rows {LONG_ROWS // 3:,} and {LONG_ROWS:,}: {late_drift.ID} "
        f"found in {len(firsts) / runs:.0%}, in the median at row {np.median(firsts):,.0f}."
    )
    return "\n".join(lines)


def cost(rows: int = 1_000_000) -> str:
    """One whole pass over twenty keys, whose levels all move, so that nothing is cut short."""
    rng, steps, run = np.random.default_rng(0), np.arange(1, rows + 1), Run()
    slow_rise = np.linspace(1.0, 1.6, rows)
    for key, (mean, sd) in list(LEVELS.items())[:20]:
        run.series[key] = Series.of(key, steps, (abs(mean) + 0.1 + sd * rng.standard_normal(rows)) * slow_rise)
    begin = time.process_time()
    diagnose_run(run)
    seconds = time.process_time() - begin
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return f"{rows:,} rows × 20 keys: {seconds:.1f} s of one core, {peak:.0f} MB at the peak (the log: 168 MB)."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the runs, prints only")
    parser.add_argument("--cost", action="store_true", help="the cost only, in this process")
    parser.add_argument("--seed", type=int, default=8128)
    arguments = parser.parse_args()
    if arguments.cost:
        print(cost())
        return
    begin = time.process_time()
    runs = 30 if arguments.quick else 300
    parts = [
        false_alarms(runs, arguments.seed),
        detection(runs // 6, arguments.seed),
        long_runs(runs // 10, arguments.seed),
    ]
    alone = subprocess.run([sys.executable, __file__, "--cost"], capture_output=True, text=True, check=True)
    parts += [f"One whole pass of all rules, {alone.stdout.strip()}"]
    parts += [f"Seed {arguments.seed}, {time.process_time() - begin:.0f} s of one core."]
    text = "\n\n".join(parts)
    print(text)
    if not arguments.quick:
        write_section("series_rules", "Rules over scalar series: false alarms, delays and cost", text)


if __name__ == "__main__":
    main()
