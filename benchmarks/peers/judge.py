"""Ask rldoctor, rlprobe and rlwatch about runs, live, step by step, with their own defaults.

Run by their own interpreter. Reads from stdin a JSON list of runs, each a mapping from TRL's log keys to one value a
step, steps counted from 1. Writes a JSON list, one mapping a run: tool → the steps of its warnings or worse. Each
tool gets the keys that its own TRL integration maps; rldoctor finds them itself.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterable, Mapping, Sequence

from rl_doctor.detectors import Severity
from rl_doctor.live import LiveMonitor
from rlprobe.doctor.engine import diagnose_view
from rlprobe.doctor.runview import RunView
from rlprobe.schemas import RunManifest, StepRecord
from rlwatch.config import RLWatchConfig
from rlwatch.detectors import DetectorSuite

Run = Mapping[str, Sequence[float]]

RLPROBE = {
    "reward": "reward_mean",
    "reward_std": "reward_std",
    "frac_reward_zero_std": "zero_variance_group_frac",
    "kl": "kl_mean",
    "entropy": "entropy_mean",
    "clip_ratio/region_mean": "clip_fraction",
    "loss": "loss",
    "learning_rate": "lr",
    "grad_norm": "grad_norm",
    "completions/mean_length": "completion_len_mean",
    "completions/clipped_ratio": "truncation_rate",
}
RLWATCH = {
    "entropy": "entropy",
    "kl": "kl_divergence",
    "reward": "reward_mean",
    "reward_std": "reward_std",
    "loss": "loss",
    "grad_norm": "grad_norm",
}
RLPROBE_EVERY = 10


def rows(run: Run) -> Iterable[dict[str, float]]:
    for values in zip(*run.values(), strict=True):
        yield dict(zip(run, values, strict=True))


def rldoctor(run: Run) -> list[int]:
    monitor = LiveMonitor(on_finding=lambda finding: None)
    return [
        step
        for step, row in enumerate(rows(run), 1)
        if any(finding.severity >= Severity.WARNING for finding in monitor.log(row, step=step))
    ]


def rlprobe(run: Run) -> list[int]:
    manifest = RunManifest(run_id="run", created_at="2026-01-01T00:00:00", algorithm="grpo")
    records: list[StepRecord] = []
    known_findings: set[tuple[str, str]] = set()
    warned = []
    for step, row in enumerate(rows(run), 1):
        rewards = {key.split("/")[1]: value for key, value in row.items() if key.startswith("rewards/")}
        known = {RLPROBE[key]: value for key, value in row.items() if key in RLPROBE}
        records.append(StepRecord(step=step, reward_components=rewards, **known))
        if step % RLPROBE_EVERY:
            continue
        found = {(f.signature_id, f.severity) for f in diagnose_view(RunView(manifest, records))}
        if any(severity != "info" for _, severity in found - known_findings):
            warned.append(step)
        known_findings |= found
    return warned


def rlwatch(run: Run) -> list[int]:
    suite = DetectorSuite(RLWatchConfig())
    return [
        step
        for step, row in enumerate(rows(run), 1)
        if suite.check_step(step, **{RLWATCH[key]: value for key, value in row.items() if key in RLWATCH})
    ]


def main() -> None:
    with contextlib.redirect_stdout(sys.stderr):
        found = [{tool.__name__: tool(run) for tool in (rldoctor, rlprobe, rlwatch)} for run in json.load(sys.stdin)]
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
