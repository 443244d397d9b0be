"""Whole runs, judged live by all rules together and, on their scalar series, by other tools.

A run has 1,000 steps, blocks of real sketches and 14 of TRL's keys. It is judged after every block of 10 steps, as the
monitor does. Recorded runs are replayed in the same way.
"""

from __future__ import annotations

import csv
import json
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from scipy import stats
from simulated_runs import ALTERNATIVES, LONG, NULLS, POST, TEXT, Floats, Scenario, ar1, build, log_tokens

from foreshock.diagnosis import diagnose_run
from foreshock.lab.saved import unpack
from foreshock.rules import tail_growth
from foreshock.rules.aggregates import aggregate_changes
from foreshock.run import Block, Run
from foreshock.run.block import EncodedSketches
from foreshock.sketch import LogRatioSketch
from foreshock.sources import open_run

HERE = Path(__file__).parent
RECORDED = HERE.parent / "experiments"
PEERS = ("rldoctor", "rlprobe", "rlwatch")
BURN_IN = 30
"""Steps of a saved run at which no tool is judged, since every tail rises while the policy leaves its reference."""

STATIONARY = 6
"""So many times more runs whose tail is stationary: few of them alarm, and the bound needs many."""

COLLAPSE = 800
"""Step at which the aggregates of the signature begin to move, 400 after its tail."""

LEVELS = {
    "loss": (0.0, 0.02),
    "reward": (0.5, 0.06),
    "rewards/accuracy/mean": (0.4, 0.06),
    "rewards/format/mean": (0.6, 0.06),
    "reward_std": (0.3, 0.05),
    "frac_reward_zero_std": (0.3, 0.1),
    "entropy": (1.5, 0.1),
    "kl": (0.05, 0.01),
    "grad_norm": (0.5, 0.1),
    "clip_ratio/region_mean": (0.01, 0.003),
    "completions/mean_length": (300.0, 25.0),
    "completions/clipped_ratio": (0.1, 0.03),
    "tools/call_frequency": (0.8, 0.1),
    "tools/failure_frequency": (0.1, 0.03),
}
"""Mean and standard deviation of each key; the noise is AR(1) with autocorrelation 0.5."""

Table = dict[str, Floats]


def flat(rng: np.random.Generator) -> Table:
    """Scalar series that stay where they are."""
    noise = ar1(rng, (len(LEVELS), LONG.steps), 0.5, 1.0)
    table = {key: mean + sd * row for (key, (mean, sd)), row in zip(LEVELS.items(), noise, strict=True)}
    return {key: values if key == "loss" else np.maximum(values, 0) for key, values in table.items()}


def collapsing(rng: np.random.Generator) -> Table:
    """The article's signature: all is flat until long after the tail grew, and then the run breaks down."""
    table, grown = flat(rng), np.clip((np.arange(LONG.steps) - COLLAPSE) / 100, 0, 1)
    for key in ("reward", "rewards/accuracy/mean", "rewards/format/mean", "reward_std"):
        table[key] *= 1 - 0.8 * grown
    table["entropy"] *= np.exp(grown)
    table["kl"] *= np.exp(3 * grown)
    table["grad_norm"] *= np.exp(2.5 * grown)
    return table


@dataclass(frozen=True, slots=True)
class Case:
    what: str
    tail: Scenario
    table: Callable[[np.random.Generator], Table]
    fails: bool = False


NULL_CASES = tuple(Case(scenario.what, scenario, flat) for scenario in NULLS)
SIGNATURE = Case("the signature: post-tool tail from step 400, aggregates from 800", ALTERNATIVES[0], collapsing, True)


def simulated(case: Case, seed: int) -> tuple[Run, Table]:
    """Draw a run as a monitor would have recorded it, and its scalar series."""
    rng = np.random.default_rng([seed, *case.tail.name.encode()])
    drawn, table = build(case.tail, LONG, rng), case.table(rng)
    run = Run(identity={"watch": {"max_steps": LONG.steps}})
    tokens = [log_tokens(drawn, name, slice(None), rng) for name in (TEXT, POST)]
    for first in range(0, LONG.steps, LONG.steps_per_block):
        sketch = LogRatioSketch()
        for name in (TEXT, POST):
            values = 0.1 * np.exp(np.concatenate(tokens[name][first : first + LONG.steps_per_block]))
            sketch.update(values, np.full(values.size, name))
        kept = EncodedSketches.of({"policy/ref": sketch})
        run.blocks.append(Block(len(run.blocks), first + 1, first + LONG.steps_per_block, kept))
    return _with_rows(run, table), table


def _with_rows(run: Run, table: Table) -> Run:
    for step in range(LONG.steps):
        run.append_scalars(step + 1, {key: float(values[step]) for key, values in table.items()})
    return run


@dataclass(slots=True)
class Told:
    """The steps at which a run that was watched live was said to be in trouble."""

    tail: list[int] = field(default_factory=list)
    tail_critical: list[int] = field(default_factory=list)
    other: list[int] = field(default_factory=list)
    critical: list[int] = field(default_factory=list)
    moved: list[int] = field(default_factory=list)
    """Steps at which loss, reward, entropy or mean KL were said to have moved."""


def replay(run: Run) -> Told:
    """Judge a run after each of its blocks, as it would have been live."""
    live, told = Run(identity=run.identity), Told()
    rows = [(key, series.steps, series.values) for key, series in run.series.items()]
    written = dict.fromkeys(run.series, 0)
    for block in run.blocks:
        live.blocks.append(block)
        for key, steps, values in rows:
            end = int(np.searchsorted(steps, block.last_step, side="right"))
            for row in range(written[key], end):
                live.append_scalars(int(steps[row]), {key: float(values[row])})
            written[key] = end
        _note(told, live, block.last_step)
    return told


def _note(told: Told, live: Run, step: int) -> None:
    findings = [finding for finding in diagnose_run(live).findings if finding.severity != "note"]
    of_tail = [finding.severity for finding in findings if finding.rule == tail_growth.ID]
    others = [finding.severity for finding in findings if finding.rule != tail_growth.ID]
    said = (
        (told.tail, of_tail),
        (told.tail_critical, "critical" in of_tail),
        (told.other, others),
        (told.critical, "critical" in of_tail + others),
        (told.moved, any(change.moved for change in aggregate_changes(live).values())),
    )
    for steps, now in said:
        if now:
            steps.append(step)


def ask_peers(tables: Sequence[Mapping[str, Floats]], python: Path | None) -> list[dict[str, list[int]]] | None:
    """What other tools say of scalar series, live; None without an environment that has them."""
    if python is None:
        return None
    runs = [{key: values.tolist() for key, values in table.items()} for table in tables]
    command = [str(python), str(HERE / "peers" / "judge.py")]
    answer = subprocess.run(command, input=json.dumps(runs), capture_output=True, text=True, check=True)
    found: list[dict[str, list[int]]] = json.loads(answer.stdout)
    return found


def share(hits: int, runs: int) -> str:
    """A share of runs with its upper 95 % bound (Clopper–Pearson)."""
    bound = 1.0 if hits == runs else float(stats.beta.ppf(0.95, hits + 1, runs - hits))
    return f"{hits} of {runs} (≤ {bound:.1%})"


def rate(hits: int, runs: int) -> str:
    """Alarms per 1,000 steps of runs of 1,000 steps, with the one-sided 95 % bound."""
    return f"{hits / runs:.3f} (≤ {stats.chi2.ppf(0.95, 2 * hits + 2) / 2 / runs:.3f})"


def whole_report(runs: int, seed: int, peers: Path | None) -> str:
    """Return the section on all rules together, and on other tools."""
    lines = [
        f"Simulated runs of {LONG.steps:,} steps, seeds from {seed}, with blocks of real sketches and {len(LEVELS)} "
        "scalar series, judged after every block. The scalar series of the first table are stationary. Runs with a "
        "warning or worse from any rule, per 1,000 steps, with the one-sided 95 % bound.",
        "",
        "| run | runs | any rule: warning | any rule: critical | tail rule: warning | series rules: warning |",
        "|---|---|---|---|---|---|",
    ]
    stationary: list[Told] = []
    for case in NULL_CASES:
        start = time.process_time()
        count = STATIONARY * runs if case.tail.change is None else runs
        told = [replay(simulated(case, seed + index)[0]) for index in range(count)]
        stationary = stationary or told
        said = [(x.tail or x.other, x.critical, x.tail, x.other) for x in told]
        cells = [rate(sum(map(bool, column)), count) for column in zip(*said, strict=True)]
        lines.append(f"| {case.what} | {count} | " + " | ".join(cells) + " |")
        print(f"whole runs, {case.what}: {cells[0]}, {time.process_time() - start:.0f} CPU-s", flush=True)
    return "\n".join([*lines, "", *_compared(stationary[: runs // 2], seed, peers)])


def _compared(stationary: Sequence[Told], seed: int, peers: Path | None) -> list[str]:
    runs = len(stationary)
    drawn = [simulated(SIGNATURE, seed + index) for index in range(runs)]
    told = [replay(run) for run, _ in drawn]
    tables = [flat(np.random.default_rng([seed, index])) for index in range(runs)]
    quiet = [replay(_scalars_only(table)) for table in tables]
    alarms = [next((step for step in x.tail if step > LONG.onset), None) for x in told]
    lines = [
        f"The article's signature, {runs} runs: the post-tool mixture of the tables below from step {LONG.onset} on; "
        f"reward, entropy, mean KL and grad_norm move from step {COLLAPSE} on, and until then a warning of a tool that "
        "reads only these is a false alarm. First warning of each tool after the onset of what it can see, and the "
        "lead of the tail rule over it. Beside it the same tools on stationary scalar series.",
        "",
        "| | stationary runs with a warning | signature: warns after the onset | median first step | median lead of "
        "the tail rule | smallest lead |",
        "|---|---|---|---|---|---|",
        _line("Foreshock, tail rule", [len(x.tail) for x in stationary], alarms, alarms),
    ]
    seen = {
        "Foreshock, series rules": ([x.other for x in quiet], [x.other for x in told]),
        "Foreshock, an aggregate has moved": ([x.moved for x in quiet], [x.moved for x in told]),
    }
    answers = ask_peers([*tables, *(table for _, table in drawn)], peers)
    for name in PEERS if answers is not None else ():
        steps = [answer[name] for answer in answers or ()]
        seen[name] = (steps[:runs], steps[runs:])
    for name, (without, signature) in seen.items():
        firsts = [next((step for step in steps if step > COLLAPSE), None) for steps in signature]
        lines.append(_line(name, [len(steps) for steps in without], firsts, alarms))
    if answers is None:
        lines += ["", "rldoctor, rlprobe and rlwatch were not asked: run `make bench-detect`."]
    return lines


def _line(name: str, stationary: Sequence[int], firsts: Sequence[int | None], alarms: Sequence[int | None]) -> str:
    found = [step for step in firsts if step is not None]
    leads = [step - alarm for step, alarm in zip(firsts, alarms, strict=True) if step is not None and alarm is not None]
    cells = [
        share(sum(count > 0 for count in stationary), len(stationary)),
        f"{len(found)} of {len(firsts)}",
        f"{np.median(found):.0f}" if found else "–",
        f"{np.median(leads):.0f}" if leads else "–",
        f"{min(leads)}" if leads else "–",
    ]
    return f"| {name} | " + " | ".join(cells) + " |"


def _scalars_only(table: Table) -> Run:
    """A run without a comparator: blocks that mark the steps, and scalar series."""
    length = LONG.steps_per_block
    blocks = [Block(first // length, first + 1, first + length, {}) for first in range(0, LONG.steps, length)]
    return _with_rows(Run(identity={"watch": {"max_steps": LONG.steps}}, blocks=blocks), table)


def recorded_report(peers: Path | None) -> str:
    """Return the section on the saved runs of the reproduction: what each tool says of them, live, and the score."""
    with open(RECORDED / "labels.csv", newline="") as file:
        labels = list(csv.DictReader(file))
    lines, scores = [], {}
    for row in sorted(labels, key=lambda row: (row["split"], row["label"], row["run"])):
        with tempfile.TemporaryDirectory() as folder:
            run = open_run(unpack(RECORDED / "runs" / f"{row['run']}.tar.gz", Path(folder)))
            firsts = _recorded(run, peers)
        steps = ["not asked" if step is None else str(step or "–") for step in firsts.values()]
        lines.append(f"| {row['run']} | {row['split']} | {row['label']} | " + " | ".join(steps) + " |")
        print(lines[-1], flush=True)
        if row["split"] == "evaluation":
            scores.setdefault(row["label"], []).append(firsts)
    columns = ["tail rule", "tail rule: critical", "series rules", "aggregate moved", *PEERS]
    return "\n".join(
        [
            "Step of the first warning of each tool on the saved runs of the reproduction (experiments/README.md), "
            f"judged after every block, from step {BURN_IN} on; – for never. An aggregate that is still learning then "
            "has moved, too; what had moved at the alarm stands in docs/reproduction.md.",
            "",
            "| run | split | label | " + " | ".join(columns) + " |",
            "|---|---|---|" + "---|" * len(columns),
            *lines,
            "",
            f"Evaluation seeds: runs with a warning after step {BURN_IN}. Of runs that grow these are detections, of "
            "quiet runs false alarms.",
            "",
            "| label | " + " | ".join(columns) + " |",
            "|---|" + "---|" * len(columns),
            *[_score(label, scores[label], columns) for label in ("grows", "quiet")],
        ]
    )


def _score(label: str, firsts: Sequence[Mapping[str, int | None]], columns: Sequence[str]) -> str:
    cells = []
    for column in columns:
        found = [run[column] for run in firsts]
        cells.append("not asked" if None in found else f"{sum(map(bool, found))} of {len(found)}")
    return f"| {label} | " + " | ".join(cells) + " |"


def _recorded(run: Run, peers: Path | None) -> dict[str, int | None]:
    """First warning of each tool after the burn-in: 0 for never, None for a tool that was not asked."""
    told = replay(run)
    length = max((len(series) for series in run.series.values()), default=0)
    table = {
        key: series.values
        for key, series in run.series.items()
        if len(series) == length and np.isfinite(series.values).all()
    }
    said = {
        "tail rule": told.tail,
        "tail rule: critical": told.tail_critical,
        "series rules": told.other,
        "aggregate moved": told.moved,
    }
    answers = ask_peers([table], peers)
    asked = {name: None if answers is None else answers[0][name] for name in PEERS}
    return {name: None if steps is None else _first(steps) for name, steps in {**said, **asked}.items()}


def _first(steps: Sequence[int]) -> int:
    """First step after the burn-in; 0 for none."""
    return next((step for step in steps if step > BURN_IN), 0)
