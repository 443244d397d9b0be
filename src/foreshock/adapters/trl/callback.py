"""One line on a TRL trainer: ``foreshock.watch(trainer, run_dir="runs/a")``."""

from __future__ import annotations

import atexit
import logging
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from trl import GRPOTrainer

from foreshock.adapters.trl.grpo import (
    POLICY_KEY,
    Inputs,
    LossTap,
    SliceFunction,
    check_slice_ids,
    rows_of,
    token_batch,
    tool_names,
)
from foreshock.adapters.trl.identity import trainer_identity
from foreshock.adapters.trl.probe import PROBE_SHARE, ReferenceProbe, can_probe_adapter
from foreshock.batch import PAIRS, SLICES
from foreshock.errors import AlreadyWatched, InputError, UnsupportedTrainer
from foreshock.live.merge import worker_rank
from foreshock.live.monitor import Monitor, MonitorConfig
from foreshock.plugins import Rule, load_rules
from foreshock.rules.finding import SEVERITIES, Finding
from foreshock.run import Run, RunWriter, prepare_directory, read_run_directory
from foreshock.views import report, terminal

logger = logging.getLogger("foreshock")

MAXIMUM_SLICES = 64
WITHOUT_FLOAT64 = ("mps",)


class ForeshockCallback(TrainerCallback):
    """Watches a TRL trainer; for ``callbacks=[…]``, where it attaches itself when training begins.

    Args:
        run_dir: folder of the run, existing or new; a resumed run appends to it.
        steps_per_block: optimizer steps merged into one block, the unit of the detectors.
        slice_fn: gives each token a user-defined slice, from the micro-batch that the loss sees (and the policy's
            ``policy_log_probs``) to integers ``(B, T)``: an index into ``slices``, or −1.
        slices: names of the user-defined slices.
        ref_model: reference model for a trainer that has none; a twentieth of the rows is scored under it.
        on_finding: called on rank 0 with every new finding.
        rules: rules beside the built-in and installed ones, or files of rules; see docs/plugins.md.
        stop_on: severity (``warning`` or ``critical``) at which training is asked to stop; never by default.
        write_report: write ``report.html`` into the run directory when training ends.

    Raises:
        InputError: an argument has a value that cannot be used, or a rule cannot be used.
        RunDirectoryError: ``run_dir`` is a file or cannot be written to.
    """

    def __init__(
        self,
        run_dir: str | os.PathLike[str],
        *,
        steps_per_block: int = 10,
        slice_fn: SliceFunction | None = None,
        slices: Sequence[str] = (),
        ref_model: Any | None = None,
        on_finding: Callable[[Finding], None] | None = None,
        rules: Iterable[Rule | str | os.PathLike[str]] = (),
        stop_on: str | None = None,
        write_report: bool = True,
    ) -> None:
        _check_arguments(steps_per_block, slice_fn, slices, stop_on)
        judges = load_rules(rules)
        self.folder = prepare_directory(run_dir)
        self.monitor: Monitor | None = None
        self._trainer: Any = None
        self._slice_fn = slice_fn
        self._ref_model = ref_model
        self._on_finding = on_finding
        self._write_report = write_report
        self._probe: ReferenceProbe | None = None
        self._notices: dict[str, str] = {}
        self._step = 0
        self._ended = False
        self._config = MonitorConfig(
            pairs=PAIRS,
            slices=(*SLICES, *slices),
            steps_per_block=steps_per_block,
            rules=judges,
            stop_on=stop_on,
            on_finding=self._announce,
            on_notice=terminal.print_notices,
            decode=self._decode,
        )

    def attach(self, trainer: Any) -> None:
        """Put the watch on a constructed trainer. Called by :func:`watch`, or when training begins.

        Raises:
            UnsupportedTrainer: it is not a ``transformers.Trainer``.
            AlreadyWatched: it has a watch already.
            InputError: ``ref_model`` does not fit the trainer.
        """
        if not isinstance(trainer, Trainer):
            raise UnsupportedTrainer(
                f"foreshock.watch got a {type(trainer).__module__}.{type(trainer).__name__}. It expects a TRL trainer "
                "such as GRPOTrainer, constructed and not yet training."
            )
        others = [
            callback for callback in trainer.callback_handler.callbacks if isinstance(callback, ForeshockCallback)
        ]
        if any(callback is not self for callback in others):
            raise AlreadyWatched(
                "This trainer has a watch already. Use one foreshock.watch or one ForeshockCallback per trainer."
            )
        device = trainer.accelerator.device
        if not isinstance(trainer, GRPOTrainer):
            self._notices["no-token-records"] = (
                f"{type(trainer).__name__} gives no per-token log-ratios to Foreshock yet, so only its logged scalars "
                "are recorded. Per-token records need a GRPOTrainer."
            )
        elif device.type in WITHOUT_FLOAT64:
            self._notices["no-token-records"] = (
                f"The device {device.type} has no float64, which exact sums need, so only logged scalars are recorded. "
                "Per-token records need a CPU or a CUDA device."
            )
        else:
            self._probe = self._choose_comparator(trainer)
            LossTap(trainer, self._deliver)
            self._config = replace(self._config, tools=tool_names(trainer))
        self._trainer = trainer

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Open a session of the run directory, on every worker the same way."""
        trainer = _trainer_of(self)
        if self._trainer is None:
            self.attach(trainer)
        if self._trainer is not trainer:
            raise AlreadyWatched("This ForeshockCallback watches another trainer. Make a new one for every trainer.")
        self._leave("interrupted")
        try:
            self._start(state)
        except Exception as error:
            # A worker that gave up alone would leave the others waiting at the first block.
            if worker_rank()[1] > 1:
                raise
            logger.warning("Foreshock could not start, and training goes on unwatched: %s", error)

    def _start(self, state: TrainerState) -> None:
        rank, _ = worker_rank()
        run, writer = Run(), None
        if rank == 0:
            identity = trainer_identity(self._trainer)
            identity["watch"] = {
                "steps_per_block": self._config.steps_per_block,
                "slices": list(self._config.slices),
                "max_steps": state.max_steps,
            }
            writer = RunWriter(self.folder, start_step=state.global_step, identity=identity, notices=self._notices)
            run = read_run_directory(self.folder, bounded=True)
            if not state.global_step and run.skipped["superseded by a later session"]:
                run.notices["earlier-run"] = (
                    f"{self.folder} holds an earlier run, which this one supersedes from step 0 on. Its lines stay "
                    "on disk."
                )
            terminal.print_notices(run.notices)
        device = self._trainer.accelerator.device
        device = torch.device("cpu") if device.type in WITHOUT_FLOAT64 else device
        self._step = state.global_step
        self.monitor = Monitor(self._config, device=device, writer=writer, run=run)
        atexit.register(self._leave, "interrupted")

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Finish a step and write the last block's values into the trainer's own logs."""
        if self.monitor is None:
            return
        self._step = state.global_step
        self.monitor.end_step(state.global_step)
        self._write_metrics()
        if self.monitor.should_stop:
            control.should_training_stop = True

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, logs: Any = None, **kwargs: Any
    ) -> None:
        """Record what the trainer logged."""
        if self.monitor is not None and logs:
            self.monitor.log(state.global_step, logs)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Judge the whole run, write the report, say the verdict."""
        if self.monitor is None:
            return
        self.monitor.finish(state.global_step)
        self.monitor.end("stopped early" if state.global_step < state.max_steps else "finished")
        self._ended = True
        self._finish_views()

    def _choose_comparator(self, trainer: Any) -> ReferenceProbe | None:
        """Return what scores rows under a reference, when the trainer itself has none."""
        if trainer.beta != 0.0:
            return None
        if getattr(trainer, "_is_vlm", False):
            self._notices["no-comparator"] = (
                "beta is 0, and rows with images cannot be scored under a reference by Foreshock yet. Set beta > 0 to "
                "have the tail of policy/ref judged."
            )
            return None
        if self._ref_model is not None:
            return ReferenceProbe(trainer, self._ref_model)
        if can_probe_adapter(trainer):
            return ReferenceProbe(trainer)
        self._notices["no-comparator"] = (
            "beta is 0 and the model has no adapter to switch off, so there is no reference to compare the policy with "
            "and the tail of policy/ref cannot be judged. Set beta > 0, train with a PEFT adapter, or pass "
            f"ref_model= to foreshock.watch (a share of {PROBE_SHARE:.0%} of the rows is scored under it). "
            "Logged scalars and any old or rollout log-probabilities are recorded all the same."
        )
        return None

    def _deliver(self, inputs: Inputs, policy: torch.Tensor | None) -> None:
        """Hand a micro-batch to the monitor; whatever fails here is the monitor's fault and stays with it."""
        monitor = self.monitor
        if monitor is None:
            return
        try:
            if policy is None:
                self._note_unseen()
                return
            # The probe's forward pass comes first and depends on nothing that may fail on one worker alone.
            probed = None if self._probe is None else self._probe.next(inputs)
            batch = token_batch(inputs, policy, self._user_slices(inputs, policy))
            monitor.observe(batch, inputs.get("advantages"))
            if probed is not None:
                monitor.observe_sample(rows_of(batch, *probed))
        except Exception as error:  # a hook of ours runs inside the loss: nothing of ours may leave it
            monitor.note_error("micro-batch", error)

    def _user_slices(self, inputs: Inputs, policy: torch.Tensor) -> torch.Tensor | None:
        """Return the slice ids that the user's function gives; a function that fails costs its own slices only."""
        if self._slice_fn is None:
            return None
        assert self.monitor is not None
        try:
            ids = self._slice_fn({**inputs, POLICY_KEY: policy})
            check_slice_ids(ids, policy)
        except Exception as error:
            self.monitor.note(
                "slice-fn", f"slice_fn failed and its slices are left out: {type(error).__name__}: {error}"
            )
            return None
        return ids

    def _note_unseen(self) -> None:
        assert self.monitor is not None
        self.monitor.note(
            "no-token-records",
            f"{type(self._trainer).__name__} computed its loss without per-token log-probabilities that Foreshock can "
            "see, so only logged scalars are recorded. A loss that is fused with the output layer (use_liger_kernel in "
            "a subclass or another TRL version) does that: switch it off to be watched.",
        )

    def _write_metrics(self) -> None:
        assert self.monitor is not None
        for key, value in self.monitor.metrics().items():
            self._trainer._metrics["train"][key] = [value]

    def _decode(self, token: int) -> str:
        return str(self._trainer.processing_class.decode([token]))

    def _announce(self, finding: Finding) -> None:
        if finding.severity != "note":  # notes are for the report; a screen that a run prints to is for what to act on
            terminal.print_finding(finding)
        if self._on_finding is not None:
            self._on_finding(finding)

    def _finish_views(self) -> None:
        assert self.monitor is not None
        diagnosis = self.monitor.diagnosis
        if diagnosis is None:
            return
        try:
            path = report.write_report(self.folder, self.monitor.run, diagnosis) if self._write_report else None
            terminal.print_verdict(diagnosis, report=path)
        except Exception as error:  # training is over and its result must not be lost to a picture
            self.monitor.note_error("report", error)

    def _leave(self, status: str) -> None:
        """Close the run directory; after an exception or an interruption, first keep and judge what was gathered."""
        if self.monitor is None:
            return
        if not self._ended:
            self.monitor.salvage(self._step)
            self.monitor.end(status)
            self._finish_views()
        self.monitor.close()
        self.monitor, self._ended = None, False
        atexit.unregister(self._leave)


def watch(trainer: Any, run_dir: str | os.PathLike[str], **options: Any) -> ForeshockCallback:
    """Watch a constructed TRL trainer; call it before ``trainer.train()``.

    ``options`` are those of :class:`ForeshockCallback`. Returns the callback, whose ``monitor.diagnosis`` holds the
    latest diagnosis on rank 0.

    Raises:
        UnsupportedTrainer: the trainer is of a class that cannot be watched.
        AlreadyWatched: it has a watch already.
        InputError, RunDirectoryError: an argument cannot be used.
    """
    callback = ForeshockCallback(run_dir, **options)
    callback.attach(trainer)
    trainer.add_callback(callback)
    return callback


def _check_arguments(steps_per_block: int, slice_fn: Any, slices: Sequence[str], stop_on: str | None) -> None:
    if not isinstance(steps_per_block, int) or steps_per_block < 1:
        raise InputError(f"steps_per_block is {steps_per_block!r}. Pass a whole number of optimizer steps, at least 1.")
    if stop_on is not None and stop_on not in SEVERITIES[1:]:
        raise InputError(f"stop_on is {stop_on!r}. Pass 'warning', 'critical', or None to never stop training.")
    if bool(slices) != (slice_fn is not None):
        raise InputError(
            "slice_fn and slices belong together: pass the function and the names of its slices, or neither."
        )
    if isinstance(slices, str) or len({*SLICES, *slices}) != len(SLICES) + len(slices):
        raise InputError(f"slices is {slices!r}. Pass distinct names other than {', '.join(SLICES)}.")
    if len(SLICES) + len(slices) > MAXIMUM_SLICES:
        raise InputError(f"{len(slices)} user slices were passed. At most {MAXIMUM_SLICES - len(SLICES)} are possible.")


def _trainer_of(callback: ForeshockCallback) -> Any:
    """Find the trainer that is calling a callback: transformers gives callbacks none, so the call stack must tell."""
    frame = sys._getframe(1)
    while frame is not None:
        candidate = frame.f_locals.get("self")
        if isinstance(candidate, Trainer) and any(each is callback for each in candidate.callback_handler.callbacks):
            return candidate
        frame = frame.f_back  # type: ignore[assignment]
    raise UnsupportedTrainer(
        "ForeshockCallback was not called by a trainer that holds it. Pass it in callbacks=[…] of a TRL trainer, or "
        "use foreshock.watch(trainer, run_dir=…)."
    )
