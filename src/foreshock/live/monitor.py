"""The in-stream monitor: what happens at every micro-batch, every step and every block of a live run.

It knows no framework: an adapter feeds it token batches, step ends and logged scalars, and asks it for metrics.
Whatever goes wrong in here is counted, reported once, and never reaches the trainer.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Concatenate, ParamSpec

import numpy as np
import torch

from foreshock.batch import DOUBTED, POST_TOOL, SLICES, TEXT_ONLY, TokenBatch
from foreshock.diagnosis import Diagnosis, diagnose_run
from foreshock.live import counters, top_tokens
from foreshock.live.counters import StepCounters
from foreshock.live.merge import PendingSum, worker_rank
from foreshock.live.top_tokens import TopTokens
from foreshock.plugins import Rule
from foreshock.rules.finding import SEVERITIES, Finding
from foreshock.run import Block, EncodedSketches, Run, RunWriter, utc_now
from foreshock.sketch.device import DeviceSketch, unpack

logger = logging.getLogger("foreshock")

P = ParamSpec("P")


def guarded(method: Callable[Concatenate[Monitor, P], None]) -> Callable[Concatenate[Monitor, P], None]:
    """Keep an error of the monitor away from training: count it, report the first one, go on."""

    def wrapper(self: Monitor, /, *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            method(self, *args, **kwargs)
        except Exception as error:  # the promise of the house: training never stops by the monitor's fault
            self.note_error(method.__name__, error)

    functools.update_wrapper(wrapper, method)
    return wrapper


@dataclass(frozen=True, slots=True)
class MonitorConfig:
    """How a run is watched.

    ``pairs`` are all pairs that could appear, ``slices`` the built-in slices and then the user's. ``rules`` judge the
    run, all installed ones when None. ``stop_on`` is the severity at which training is asked to stop, or None.
    ``on_finding`` is called on rank 0 with every new finding, ``on_notice`` with what turns out to be unwatchable.
    ``decode`` gives the text of a token id.
    ``tools`` are the names behind the numbers of :attr:`TokenBatch.tools`, the same on every worker.
    """

    pairs: tuple[str, ...]
    slices: tuple[str, ...] = SLICES
    steps_per_block: int = 10
    rules: tuple[Rule, ...] | None = None
    stop_on: str | None = None
    on_finding: Callable[[Finding], None] | None = None
    on_notice: Callable[[Mapping[str, str]], None] | None = None
    decode: Callable[[int], str] | None = None
    tools: tuple[str, ...] = ()


class Monitor:
    """Watches one run on one worker. Rank 0 also writes the run directory and judges the run."""

    def __init__(self, config: MonitorConfig, *, device: torch.device, writer: RunWriter | None, run: Run) -> None:
        self.config = config
        self.run = run
        self.diagnosis: Diagnosis | None = None
        self.errors = 0
        self.should_stop = False
        self._writer = writer
        self._rank, self._world_size = worker_rank()
        self._sketch = DeviceSketch(config.pairs, config.slices, device, rank=self._rank, world_size=self._world_size)
        self._counters = StepCounters(config.steps_per_block, device)
        self._top = TopTokens(device, rank=self._rank, world_size=self._world_size)
        self._device = device
        self._buffer_sizes = [len(part.pack()) for part in (self._counters, self._top, self._sketch)]
        self._judged_pair: str | None = None
        self._metrics: dict[str, float] = {}
        self._offset = 0
        self._first_step: int | None = None
        self._pending: tuple[PendingSum, int, int] | None = None
        self._raised: dict[tuple[str, str], int] = {}
        self._errors_sent = 0
        self._stop_wanted = False
        self._remember_findings()

    @guarded
    def _remember_findings(self) -> None:
        """Note what a resumed run was warned of already, so that it is neither said again nor a new reason to stop."""
        if self.run.blocks:
            self.diagnosis = diagnose_run(self.run, self.config.rules)
            self._raised = {_key(finding): _rank(finding.severity) for finding in self.diagnosis.findings}

    @guarded
    def observe(self, batch: TokenBatch, advantages: torch.Tensor | None = None) -> None:
        """Take in one micro-batch. Nothing here waits for the device.

        ``advantages``: shape ``(B,)`` or ``(B, T)``, only checked for non-finite values.
        """
        mask = batch.response_mask.bool()
        slice_ids = batch.slice_ids()
        self._count("micro_batches", 1)
        self._count("rows", mask.shape[0])
        self._count("response_tokens", mask.count_nonzero())
        self._count("observation_tokens", batch.observation_mask.count_nonzero())
        self._count("post_tool_tokens", (mask & slice_ids).count_nonzero())
        for name, log_probs in batch.log_probs.items():
            # x − x is 0 for a finite x and NaN, which is true, for any other: several times cheaper than isfinite.
            self._count(f"nonfinite/{name}", ((log_probs - log_probs).bool() & mask).count_nonzero())
        sampler, trainer = batch.log_probs.get("rollout"), batch.log_probs.get("old", batch.log_probs.get("policy"))
        if sampler is not None and trainer is not None:  # a placeholder: certain to the one, unlikely to the other
            self._count("unscored_tokens", (mask & (sampler == 0) & (trainer < DOUBTED)).count_nonzero())
        if advantages is not None:
            self._count("nonfinite/advantages", advantages.isfinite().logical_not().sum())
        self._update_sketches(batch, slice_ids, mask)

    @guarded
    def observe_sample(self, batch: TokenBatch) -> None:
        """Take in a sample of rows that :meth:`observe` has counted already, for pairs that cost an extra forward."""
        self._update_sketches(batch, batch.slice_ids(), batch.response_mask.bool())

    def end_step(self, step: int) -> None:
        """Finish an optimizer step: collect the block that was sent off a step ago, and send off a full one."""
        if self._first_step is None:
            self._first_step = step
        self._collect()
        self._offset += 1
        if step % self.config.steps_per_block == 0 or self._offset == self.config.steps_per_block:
            self._send(step)
        if self._world_size == 1 and self._stop_wanted:
            self.should_stop = True

    @guarded
    def log(self, step: int, values: Mapping[str, Any]) -> None:
        """Take in the scalars that the trainer logged at a step (rank 0)."""
        if self._writer is None:
            return
        plain = {key: _plain(value) for key, value in values.items()}
        self._writer.write_metrics(step, plain)
        self.run.append_scalars(step, plain)

    def finish(self, step: int) -> None:
        """End the run: every worker sends what is left of its last block, rank 0 judges the whole run."""
        self._collect()
        if self._offset:
            self._send(step)
            self._collect()
        self._judge()

    @guarded
    def salvage(self, step: int) -> None:
        """Keep what a run that ends before its time has gathered. Other workers may be gone, so none is waited for."""
        if self._world_size == 1:
            self.finish(step)

    @guarded
    def end(self, status: str) -> None:
        """Write how the run ended. What the trainer logs later, such as an evaluation, is still recorded."""
        self.run.identity = {**self.run.identity, "status": status, "ended": utc_now()}
        if self._writer is not None:
            verdict = self.diagnosis.verdict if self.diagnosis else None
            self._writer.update_session(notices=dict(self.run.notices), monitor_errors=self.errors, verdict=verdict)
            self._writer.end(status)

    @guarded
    def close(self) -> None:
        """Close the files of the run directory."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def metrics(self) -> dict[str, float]:
        """Return the values of the last merged block for the trainer's own logs, at most eight keys.

        The same on one worker and on many, because they come from the merged block.
        """
        return self._metrics

    def note(self, code: str, text: str) -> None:
        """Say once what cannot be watched and what to set, and record it."""
        if code in self.run.notices:
            return
        self.run.notices[code] = text
        if self._writer is not None:
            self._save_notices()
            if self.config.on_notice is not None:
                self.config.on_notice({code: text})

    @guarded
    def _save_notices(self) -> None:
        if self._writer is not None:
            self._writer.update_session(notices=dict(self.run.notices))

    @guarded
    def _refresh_metrics(self, block: Block) -> None:
        """Read the values of a new block of the run; the last ones stay when it has no comparator."""
        pair = self.run.pair
        if pair is None or pair not in block.sketches:
            return
        sketch = block.sketches[pair]
        prefix = f"foreshock/{pair.replace('/', '_')}"
        found = {}
        for name in (TEXT_ONLY, POST_TOOL):
            found[f"{prefix}/abs_p95/{name}"] = sketch.quantile(0.95, name)
            found[f"{prefix}/abs_p99/{name}"] = sketch.quantile(0.99, name)
            found[f"{prefix}/ess_share_cap3/{name}"] = sketch.ess_share(name, cap=3.0)
        found[f"foreshock/tokens/alpha/{POST_TOOL}"] = sketch.alpha()
        self._metrics = {key: diagnostic.value for key, diagnostic in found.items() if diagnostic.ok}

    def note_error(self, where: str, error: BaseException) -> None:
        """Count an error of the monitor itself and report the first one."""
        self.errors += 1
        self.run.notices["monitor-errors"] = (
            f"{self.errors} error(s) inside Foreshock; the first in {where}: {self._first_error(error)}. "
            "Training went on, but parts of the record may be missing."
        )
        if self.errors == 1:
            logger.warning(
                "Foreshock met an error in %s and goes on without the affected values: %s: %s",
                where,
                type(error).__name__,
                error,
                exc_info=logger.isEnabledFor(logging.DEBUG),
            )

    def _first_error(self, error: BaseException) -> str:
        if self.errors == 1:
            self._first_error_text = f"{type(error).__name__}: {error}"
        return self._first_error_text

    def _count(self, name: str, amount: torch.Tensor | float) -> None:
        self._counters.add(self._step_in_block, name, amount)

    @property
    def _step_in_block(self) -> int:
        return min(self._offset, self.config.steps_per_block - 1)

    def _update_sketches(self, batch: TokenBatch, slice_ids: torch.Tensor, mask: torch.Tensor) -> None:
        for pair, (numerator, denominator) in batch.pairs().items():
            log_ratio = numerator.float() - denominator.float()
            if self._is_judged(pair):
                self._top.update(batch, log_ratio, slice_ids, mask, self._step_in_block)
            self._sketch.update(pair, log_ratio, slice_ids, mask)
            if batch.user_slices is not None:
                user_ids, in_slice = batch.user_slices + len(SLICES), mask & (batch.user_slices >= 0)
                self._sketch.update(pair, log_ratio, user_ids, in_slice, again=True)

    def _is_judged(self, pair: str) -> bool:
        """Say whether the pair is the first in order that was ever seen, whose largest tokens are kept."""
        order = self.config.pairs.index
        if self._judged_pair is None or order(pair) < order(self._judged_pair):
            self._judged_pair = pair
            self._top.reset()
        return pair == self._judged_pair

    def _send(self, step: int) -> None:
        """Start the one sum over workers of this block; reached on every worker, whatever its data."""
        self._offset = max(self._offset - 1, 0)  # what is counted from here on belongs to the step that has just ended
        if self.errors > self._errors_sent:
            self._count("errors", self.errors - self._errors_sent)
            self._errors_sent = self.errors
        if self._rank == 0 and self._stop_wanted:
            self._count("stop", 1.0)
        first_step = self._first_step if self._first_step is not None else step
        self._pending = (PendingSum(self._pack()), first_step, step)
        self._sketch.reset()
        self._counters.reset()
        self._top.reset()
        self._offset = 0
        self._first_step = step + 1

    def _pack(self) -> torch.Tensor:
        """Return the buffer of this block. A worker that fails at it still takes part in the sum, with zeros."""
        try:
            for pair, has_tokens in zip(self.config.pairs, self._sketch.has_tokens(), strict=True):
                self._count(f"workers/{pair}", has_tokens)
            return torch.cat([self._counters.pack(), self._top.pack(), self._sketch.pack()])
        except Exception as error:  # a worker that stayed away from the sum would stall all others
            self.note_error("pack", error)
            return torch.zeros(sum(self._buffer_sizes), dtype=torch.float64, device=self._device)

    @guarded
    def _collect(self) -> None:
        if self._pending is None:
            return
        pending, first_step, last_step = self._pending
        self._pending = None
        step_counts, top, sums = np.split(pending.result(), np.cumsum(self._buffer_sizes)[:-1])
        counts = counters.unpack(step_counts, last_step - first_step + 1)
        if any(counts["stop"]):
            self.should_stop = True
        sketches = unpack(sums, self.config.pairs, self.config.slices, self._world_size)
        seen = {pair: sketch for pair, sketch in sketches.items() if sketch.has_tokens}
        index = self.run.blocks[-1].index + 1 if self.run.blocks else 0
        tokens = top_tokens.unpack(top, first_step, self._world_size, self.config.decode, self.config.tools)
        block = Block(index, first_step, last_step, EncodedSketches.of(seen), self._world_size, counts, tokens)
        kept = block
        try:
            if self._writer is not None:
                kept = self._writer.write_block(block)
        finally:  # a block that cannot be written is kept in memory
            self._add(block, kept)
        self._judge()

    def _add(self, block: Block, kept: Block) -> None:
        if self._rank:
            self.run.blocks = [block]  # only the first worker judges; the others show the last block
        else:
            self.run.blocks.append(kept)
        self._refresh_metrics(block)

    @guarded
    def _judge(self) -> None:
        if self._writer is None:
            return
        self.diagnosis = diagnose_run(self.run, self.config.rules)
        for finding in self.diagnosis.findings:
            severity = _rank(finding.severity)
            if severity <= self._raised.get(_key(finding), -1):
                continue
            self._raised[_key(finding)] = severity
            self._writer.write_finding(finding.to_dict())
            if self.config.stop_on and severity >= _rank(self.config.stop_on):
                self._stop_wanted = True
            if self.config.on_finding is not None:
                self.config.on_finding(finding)


def _key(finding: Finding) -> tuple[str, str]:
    return finding.rule, finding.slice


def _rank(severity: str) -> int:
    return SEVERITIES.index(severity)


def _plain(value: Any) -> Any:
    """Turn a 0-dimensional tensor or NumPy number, as trainers log them, into a Python number."""
    return value.item() if hasattr(value, "item") and getattr(value, "ndim", 1) == 0 else value
