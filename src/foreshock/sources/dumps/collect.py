"""The reduce: summaries of files become blocks of ten steps and series, and these a run.

Everything is added up in the order of the files, so that one worker and many give the same bits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from foreshock.batch import PAIRS, SLICES
from foreshock.errors import ReadError, RunDirectoryError
from foreshock.run import Block, EncodedSketches, Run, RunWriter, TopToken, prepare_directory
from foreshock.sketch import LogRatioSketch, load_compiled
from foreshock.sources.dumps.engine import FileResult, is_large, map_files
from foreshock.sources.dumps.formats import Dump, open_dump
from foreshock.sources.dumps.summary import Group, StepSummary, Top, largest
from foreshock.sources.progress import tracked, waiting

STEPS_PER_BLOCK = 10
REPEATED = "files that repeat the samples of another worker"
UNREADABLE = "unreadable files"


def read(path: Path) -> Run:
    """Read a token dump as a run, in this process.

    Raises:
        ReadError: there is no dump, or no file of it can be read.
        MissingExtra: the format needs a package that is not installed.
    """
    return collect(open_dump(path))


def collect(dump: Dump, *, engine: str = "local", workers: int = 1) -> Run:
    """Summarise a dump as a run with blocks and series, holding one file at a time per worker.

    Raises:
        ReadError: no file of the dump can be read.
        InputError: the engine is unknown, or fewer than one worker was asked for.
        MissingExtra: the engine or the format needs a package that is not installed.
    """
    large, reason = is_large(dump), ""
    if large:
        with waiting("Loading compiled code, which takes longer the first time"):
            reason = load_compiled()
    results = map_files(dump, engine=engine, workers=workers, compiled=large and not reason)
    run = _reduced(dump, tracked(results, len(dump.files), "files"))
    if reason:
        run.notices["not_compiled"] = (
            "So large a dump is read faster with compiled code: pip install 'foreshock[fast]'. It could not be loaded, "
            f"and NumPy counted the same ({reason})."
        )
    return run


def check_is_new(folder: Path) -> None:
    """Check that a run can be written to a folder.

    Raises:
        RunDirectoryError: it holds a run already, or cannot be written to.
    """
    if (folder / "run.json").exists():
        raise RunDirectoryError(f"{str(folder)!r} holds a run already. Pass a new folder.")
    prepare_directory(folder)


def write(run: Run, folder: Path) -> None:
    """Write a collected run as a new run directory.

    Raises:
        RunDirectoryError: the folder holds a run already, or cannot be written to.
    """
    check_is_new(folder)
    notices = {**run.notices, **_skipped_notice(run.skipped)}
    writer = RunWriter(folder, start_step=0, identity=run.identity, notices=notices)
    rows: dict[int, dict[str, float]] = {}
    for key, series in run.series.items():
        for step, value in zip(series.steps.tolist(), series.values.tolist(), strict=True):
            rows.setdefault(step, {})[key] = value
    for step in sorted(rows):
        writer.write_metrics(step, rows[step])
    for block in run.blocks:
        writer.write_block(block)
    writer.end("collected")
    writer.close()


def _skipped_notice(skipped: Counter[str]) -> dict[str, str]:
    listed = "; ".join(f"{reason}: {count}" for reason, count in skipped.items())
    return {"skipped": f"Read but not used when this run was collected: {listed}."} if listed else {}


@dataclass(slots=True)
class _Step:
    """One step over all files: counters, sums, and the rows of each prompt."""

    counters: Counter[str] = field(default_factory=Counter)
    sums: Counter[str] = field(default_factory=Counter)
    groups: dict[int, Group] = field(default_factory=dict)

    def add_rows(self, summary: StepSummary) -> None:
        self.sums.update(summary.sums)
        for prompt, group in summary.groups.items():
            self.groups.setdefault(prompt, Group()).add(group)

    def scalars(self) -> dict[str, float]:
        """Return what a trainer would have logged of this step."""
        found = {"completions/mean_length": self.counters["response_tokens"] / max(self.counters["rows"], 1)}
        for name in ("reward", "entropy"):
            if self.sums[f"{name}/n"]:
                found[name] = self.sums[name] / self.sums[f"{name}/n"]
        judged = [group for group in self.groups.values() if group.rewarded > 1]
        if judged:
            found["frac_reward_zero_std"] = sum(group.lowest == group.highest for group in judged) / len(judged)
        return found


@dataclass(slots=True)
class _Block:
    """The sketches and the largest tokens of the steps of one block, by pair."""

    sketches: dict[str, LogRatioSketch] = field(default_factory=dict)
    top: dict[str, Top] = field(default_factory=dict)

    def add(self, summary: StepSummary, pairs: Iterable[str]) -> None:
        for pair in pairs:
            sketch = summary.sketches[pair]
            if pair not in self.sketches:
                self.sketches[pair] = LogRatioSketch(sketch.slices)
            self.sketches[pair].merge(sketch)
            kept = self.top.setdefault(pair, {name: [] for name in SLICES})
            for name in SLICES:
                kept[name] = largest((*kept[name], *summary.top[pair][name]))

    def finished(self, index: int, steps: dict[int, _Step]) -> Block:
        first, last = min(steps), max(steps)
        names = sorted({name for step in steps.values() for name in step.counters})
        counters = {
            name: tuple(float(steps[step].counters[name]) if step in steps else 0.0 for step in range(first, last + 1))
            for name in names
        }
        judged = next((pair for pair in PAIRS if pair in self.sketches), None)
        top: dict[str, tuple[TopToken, ...]] = (
            {} if judged is None else {name: tuple(tokens) for name, tokens in self.top[judged].items()}
        )
        return Block(index, first, last, EncodedSketches.of(self.sketches), 1, counters, top)


def _reduced(dump: Dump, results: Iterable[FileResult]) -> Run:
    steps: dict[int, _Step] = {}
    blocks: dict[int, _Block] = {}
    seen: dict[tuple[int, bytes], set[str]] = {}
    run = Run(path=dump.path, skipped=Counter(dump.skipped))
    reasons: list[str] = []
    for result in results:
        run.skipped.update(result.skipped)
        if result.error:
            run.skipped[UNREADABLE] += 1
            reasons.append(result.error)
        summary = result.summary
        if summary is None:
            continue
        found = {pair for pair, sketch in summary.sketches.items() if sketch.has_tokens}
        step = steps.setdefault(summary.step, _Step())
        known = seen.setdefault((summary.step, summary.samples), set())
        if known:
            run.skipped[REPEATED] += 1
        else:
            step.add_rows(summary)
        # Of workers with the same samples, only some may have computed log-probabilities: take what is new.
        found -= known
        fresh = {name: count for name, count in summary.counters.items() if name not in known}
        step.counters.update(fresh)
        known.update(found, fresh)
        number = (summary.step - dump.format.first_step) // STEPS_PER_BLOCK
        blocks.setdefault(number, _Block()).add(summary, sorted(found))
    if not steps:
        raise ReadError(
            f"{str(dump.path)!r} is a {dump.format.name} without a completed step that holds response tokens."
            + (f" The first reason: {reasons[0]}" if reasons else "")
        )
    if reasons:
        run.notices["unreadable_files"] = f"{len(reasons)} files could not be read. The first: {reasons[0]}"
    _fill(run, dump, steps, blocks)
    return run


def _fill(run: Run, dump: Dump, steps: dict[int, _Step], blocks: dict[int, _Block]) -> None:
    for step in sorted(steps):
        run.append_scalars(step, steps[step].scalars())
    for index, number in enumerate(sorted(blocks)):
        start = dump.format.first_step + number * STEPS_PER_BLOCK
        inside = {step: steps[step] for step in range(start, start + STEPS_PER_BLOCK) if step in steps}
        run.blocks.append(blocks[number].finished(index, inside))
    if run.pair is None:
        run.notices["no-comparator"] = (
            "The dump holds the log-probabilities of one policy only, or zeros in place of the other's, so that there "
            "is no log-ratio to judge."
        )
    missing = max(steps) - min(steps) + 1 - len(steps)
    if missing:
        run.notices["missing_steps"] = f"Of the steps {min(steps)} to {max(steps)}, {missing} are not in the dump."
    run.identity = {
        "source": {
            "format": dump.format.name,
            "path": str(dump.path),
            "rows": int(sum(step.counters["rows"] for step in steps.values())),
            "keys": {key: name for key, name in dump.format.keys.items() if name in run.series},
        }
    }
