"""How often the rules over scalar series warn on simulated healthy runs, and how soon on runs that go wrong.

Every run logs 14 of TRL's keys for 300 steps. A live run is judged after every 10 steps and offline at the end, so both
are counted: a warning at any time, and one at the last step.

    python benchmarks/series_rules.py            # about 2 minutes on one core; rewrites its section of results.md
    python benchmarks/series_rules.py --quick    # a tenth of the runs, prints only
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable
from types import ModuleType

import numpy as np
from numpy.typing import NDArray
from results import write_section
from scipy import stats

from foreshock.rules import (
    OVER_SERIES,
    entropy_change,
    gradient_tail,
    kl_runaway,
    length_at_cap,
    reward_hacking,
    tool_failures,
    tool_use,
    update_blocked,
    zero_signal,
)
from foreshock.run import Run

STEPS, EVERY = 300, 10
ONSET = 120
Floats = NDArray[np.float64]
Table = dict[str, Floats]

LEVELS = {
    "loss": (0.0, 0.02),
    "reward": (0.5, 0.06),
    "rewards/accuracy/mean": (0.4, 0.06),
    "rewards/format/mean": (0.6, 0.06),
    "reward_std": (0.3, 0.05),
    "frac_reward_zero_std": (0.3, 0.1),
    "entropy": (1.0, 0.1),
    "kl": (0.05, 0.015),
    "grad_norm": (0.5, 0.1),
    "clip_ratio/region_mean": (0.01, 0.004),
    "completions/mean_length": (300.0, 25.0),
    "completions/clipped_ratio": (0.1, 0.04),
    "tools/call_frequency": (0.8, 0.1),
    "tools/failure_frequency": (0.1, 0.05),
}
"""Mean and standard deviation of each key on a stationary run."""

BOUNDED = ("rewards/accuracy/mean", "rewards/format/mean", "frac_reward_zero_std", "completions/clipped_ratio")
POSITIVE = ("reward_std", "entropy", "kl", "grad_norm", "tools/call_frequency", "tools/failure_frequency")


def noise(rng: np.random.Generator, rho: float = 0.0, steps: int = STEPS) -> Floats:
    """AR(1) noise of standard deviation 1."""
    shocks = rng.normal(size=steps) * np.sqrt(1 - rho * rho)
    shocks[0] = rng.normal()
    for step in range(1, steps if rho else 0):
        shocks[step] += rho * shocks[step - 1]
    return shocks


def limited(table: Table) -> Table:
    """Keep shares between 0 and 1 and the others at or above 0."""
    for key in BOUNDED:
        table[key] = np.clip(table[key], 0, 1)
    for key in POSITIVE:
        table[key] = np.maximum(table[key], 0.0)
    return table


def stationary(rho: float) -> Callable[[np.random.Generator], Table]:
    return lambda rng: limited({key: mean + sd * noise(rng, rho) for key, (mean, sd) in LEVELS.items()})


def bare(rng: np.random.Generator) -> Table:
    """White noise around zero in every key, as tools are often tried."""
    return {key: noise(rng) for key in LEVELS}


def rough(rng: np.random.Generator) -> Table:
    """A small batch: wide, skewed, autocorrelated noise; one group a step, so that each share is 0 or 1."""
    table = stationary(0.7)(rng)
    for key, spread in (("kl", 0.6), ("grad_norm", 0.8), ("entropy", 0.25), ("reward_std", 0.5)):
        table[key] = LEVELS[key][0] * np.exp(spread * noise(rng, 0.7))
    for key, sd in (("reward", 0.2), ("rewards/accuracy/mean", 0.2), ("tools/call_frequency", 0.35)):
        table[key] = LEVELS[key][0] + sd * noise(rng, 0.3)
    for key, probability in (("frac_reward_zero_std", 0.6), ("completions/clipped_ratio", 0.3)):
        table[key] = (rng.random(STEPS) < probability).astype(float)
    return limited(table)


def slow_start(rng: np.random.Generator) -> Table:
    """The same as :func:`healthy` with a learning rate that warms up over 20 to 100 steps."""
    return healthy(rng, ramp=int(rng.integers(20, 100)))


def healthy(rng: np.random.Generator, ramp: int = 1) -> Table:
    """A run that learns: time constants, sizes and autocorrelation differ from run to run."""
    rate, rho = np.minimum(np.arange(1, STEPS + 1) / ramp, 1.0), rng.uniform(0, 0.6)
    step = np.cumsum(rate) - rate[0]
    learned = 1 - np.exp(-step / rng.uniform(30, 150))
    accuracy = rng.uniform(0.1, 0.4) + rng.uniform(0.3, 0.5) * learned
    form = 0.5 + 0.45 * (1 - np.exp(-step / rng.uniform(10, 60)))
    spikes = np.where(rng.random(STEPS) < 0.03, rng.uniform(3, 30, STEPS), 1.0)
    table = {
        "learning_rate": 1e-5 * rate,
        "loss": 0.02 * noise(rng, rho),
        "rewards/accuracy/mean": accuracy + 0.05 * noise(rng, rho),
        "rewards/format/mean": form + 0.02 * noise(rng, rho),
        "reward_std": 0.35 - 0.15 * learned + 0.04 * noise(rng, rho),
        "frac_reward_zero_std": 0.1 + rng.uniform(0.2, 0.6) * learned + 0.08 * noise(rng, rho),
        "entropy": 1.0 - rng.uniform(0.3, 0.7) * learned + 0.05 * noise(rng, rho),
        "kl": rng.uniform(0.02, 0.5) * learned * np.exp(0.2 * noise(rng, rho)),
        "grad_norm": (0.5 - 0.2 * learned) * np.exp(0.3 * noise(rng, rho)) * spikes,
        "clip_ratio/region_mean": 0.01 + 0.004 * noise(rng, rho),
        "completions/mean_length": 200 * (1 + rng.uniform(0.2, 1.5) * learned) + 15 * noise(rng, rho),
        "completions/clipped_ratio": 0.02 + rng.uniform(0, 0.2) * learned + 0.02 * noise(rng, rho),
        "tools/call_frequency": 0.3 + rng.uniform(0.2, 1.5) * learned + 0.08 * noise(rng, rho),
        "tools/failure_frequency": 0.4 * (1 - learned) + 0.04 * noise(rng, rho),
    }
    table = limited(table)
    table["reward"] = table["rewards/accuracy/mean"] + 0.2 * table["rewards/format/mean"]
    return table


HEALTHY: dict[str, Callable[[np.random.Generator], Table]] = {
    "white noise": stationary(0.0),
    "white noise around 0": bare,
    "AR(1), ρ = 0.5": stationary(0.5),
    "AR(1), ρ = 0.9": stationary(0.9),
    "rough, one group a step": rough,
    "learning": healthy,
    "learning, slow start": slow_start,
}


def growth(over: int = 120) -> Floats:
    """0 before the onset, 1 from ``over`` steps after it on."""
    return np.clip((np.arange(STEPS) - ONSET) / over, 0, 1)


def _zero_signal(table: Table) -> None:
    table["frac_reward_zero_std"] += (0.995 - table["frac_reward_zero_std"]) * growth(60)
    table["reward"] -= (table["reward"] - 0.05) * growth(60)


def _cap(table: Table) -> None:
    table["completions/clipped_ratio"] += (0.97 - table["completions/clipped_ratio"]) * growth()


def _kl(table: Table) -> None:
    table["kl"] *= np.exp(np.log(60.0) * growth())


def _entropy(table: Table) -> None:
    table["entropy"] *= 1 - 0.85 * growth()
    table["reward"] -= 0.3 * growth()


def _gradient(table: Table) -> None:
    table["grad_norm"] *= np.exp(np.log(12.0) * growth())


def _blocked(table: Table) -> None:
    table["grad_norm"][ONSET:] = 0.0


def _hacking(table: Table) -> None:
    table["reward"] += 0.4 * growth()
    table["rewards/format/mean"] += 0.4 * growth()


def _no_tools(table: Table) -> None:
    table["tools/call_frequency"] *= 1 - 0.97 * growth()


def _broken_tools(table: Table) -> None:
    table["tools/failure_frequency"][ONSET:] += 0.75


FAILING: dict[str, tuple[Callable[[Table], None], ModuleType]] = {
    "groups lose their spread, reward falls": (_zero_signal, zero_signal),
    "completions run into the cap": (_cap, length_at_cap),
    "KL grows ×60": (_kl, kl_runaway),
    "entropy falls to 15 %, reward falls": (_entropy, entropy_change),
    "grad_norm grows ×12": (_gradient, gradient_tail),
    "grad_norm becomes 0": (_blocked, update_blocked),
    "one reward rises, another does not": (_hacking, reward_hacking),
    "tool calls stop": (_no_tools, tool_use),
    "tools break": (_broken_tools, tool_failures),
}


def judge(table: Table) -> dict[str, tuple[int, int, bool]]:
    """Return by rule: the step of its first warning (or more), that of its first critical finding, both 0 for none, and
    whether it warns at the end."""
    run, found = Run(), {rule.ID: (0, 0, False) for rule in OVER_SERIES}
    for step in range(1, STEPS + 1):
        run.append_scalars(step, {key: float(values[step - 1]) for key, values in table.items()})
        if step % EVERY:
            continue
        for rule in OVER_SERIES:
            severities = {finding.severity for finding in rule.check(run).findings} - {"note"}
            first, critical, _ = found[rule.ID]
            found[rule.ID] = (
                first or (step if severities else 0),
                critical or (step if "critical" in severities else 0),
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
        f"Runs with a finding at or above a level, of {runs} each, with the upper 95 % bound (Clopper–Pearson):",
        "",
        "| run | warning at any time | warning at the end | critical at any time |",
        "|---|---:|---:|---:|",
    ]
    by_rule: dict[str, Counter[str]] = {rule.ID: Counter() for rule in OVER_SERIES}
    for number, (name, make) in enumerate(HEALTHY.items()):
        rng = np.random.default_rng([seed, number])
        counts: Counter[str] = Counter()
        for _ in range(runs):
            found = judge(make(rng))
            counts["any"] += any(first for first, _, _ in found.values())
            counts["end"] += any(end for _, _, end in found.values())
            counts["critical"] += any(critical for _, critical, _ in found.values())
            for rule, (first, critical, end) in found.items():
                by_rule[rule].update({"any": bool(first), "critical": bool(critical), "end": end, name: bool(first)})
        lines.append(
            f"| {name} | {share(counts['any'], runs)} | {share(counts['end'], runs)} | "
            f"{share(counts['critical'], runs)} |"
        )
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


def detection(runs: int, seed: int) -> str:
    lines = [
        f"Failures that begin at step {ONSET} of runs with AR(1) noise (ρ = 0.5), {runs} runs each. The delay counts "
        "from there to the first warning of the rule; most of these failures take 120 steps to unfold.",
        "",
        "| failure | rule | found | critical | median delay (steps) | 90 % by | too early |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for number, (name, (change, rule)) in enumerate(FAILING.items()):
        rng = np.random.default_rng([seed + 1, number])
        firsts, criticals = [], 0
        for _ in range(runs):
            table = stationary(0.5)(rng)
            change(table)
            first, critical, _ = judge(limited(table))[rule.ID]
            firsts.append(first)
            criticals += bool(critical)
        delays = [first - ONSET for first in firsts if first > ONSET]
        early = sum(0 < first <= ONSET for first in firsts)
        median, late = np.quantile(delays, [0.5, 0.9]) if delays else (np.nan, np.nan)
        lines.append(
            f"| {name} | {rule.ID} | {len(delays) / runs:.0%} | {criticals / runs:.0%} | {median:.0f} | {late:.0f} | "
            f"{early} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the runs, prints only")
    parser.add_argument("--seed", type=int, default=4711)
    arguments = parser.parse_args()
    begin = time.process_time()
    runs = 30 if arguments.quick else 300
    text = f"{false_alarms(runs, arguments.seed)}\n\n{detection(runs // 6, arguments.seed)}\n\n"
    text += f"Seed {arguments.seed}, {time.process_time() - begin:.0f} s of one core."
    print(text)
    if not arguments.quick:
        write_section("series_rules", "Rules over scalar series: false alarms and delays", text)


if __name__ == "__main__":
    main()
