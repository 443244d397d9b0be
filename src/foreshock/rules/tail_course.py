"""The tail of a run, block by block: what the rule on post-tool tail growth judges, read once from each block."""

from __future__ import annotations

import math
import sys
from array import array
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import overload

from foreshock.batch import POST_TOOL, TEXT_ONLY
from foreshock.detect.e_process import CRITICAL_STEPS, WARNING_STEPS, threshold
from foreshock.detect.growth import LATEST_BLOCKS, STANDARD_ERRORS, GrowthBeyond
from foreshock.detect.series_change import Change
from foreshock.detect.tail import tail_contrast, tail_level, tail_shape
from foreshock.rules.warm_up import warm_up_steps
from foreshock.run import Block, Run
from foreshock.stats.diagnostic import Diagnostic
from foreshock.stats.trend import theil_sen

MINIMUM_GROWTH = 1.2
"""Growth of the post-tool tail, and beyond the text-only one, below which there is only a note (heuristic)."""

CRITICAL_GROWTH = 1.5
"""Growth below which nothing is critical (heuristic)."""

LONE_GROWTH = 2.0
"""Growth from which on a post-tool tail without a text-only one beside it is a warning, and a text-only tail that grows
alone is a note (heuristic)."""

HARMFUL_P99 = 2.0
"""Bound of harm, in nats: one post-tool token in a hundred then has an importance ratio beyond 7 (heuristic)."""

HORIZON = 200
"""A bound that the trend reaches within so many steps is near (heuristic)."""

ENOUGH_BLOCKS = 13
"""Judged blocks below which the evidence cannot reach a warning whatever they hold, and silence means nothing."""

TREND_BLOCKS = 20
"""Latest blocks whose slope is called the trend."""


@dataclass(frozen=True, slots=True)
class TailReading:
    """One block: tail level and tail shape of ``post_tool``, both also beyond ``text_only``, and p99 of |r| in nats."""

    level: Diagnostic
    level_beyond: Diagnostic
    shape: Diagnostic
    shape_beyond: Diagnostic
    p99: float


class Chosen(Sequence[Block]):
    """Some of the blocks of a run, by their places: eight bytes each, whatever a block takes."""

    def __init__(self) -> None:
        self.of: Sequence[Block] = ()
        self.places = array("q")

    def __len__(self) -> int:
        return len(self.places)

    @overload
    def __getitem__(self, number: int) -> Block: ...
    @overload
    def __getitem__(self, number: slice) -> list[Block]: ...
    def __getitem__(self, number: int | slice) -> Block | list[Block]:
        if isinstance(number, slice):
            return [self.of[place] for place in self.places[number]]
        return self.of[self.places[number]]


@dataclass(slots=True)
class TailCourse:
    """What is known of the tail of one pair after the blocks read so far.

    ``blocks``: those whose post-tool tail has a level; ``contrasted``: those that can be compared with text-only ones.
    ``unusable``: how many other blocks have no contrast; ``why_unusable``: why the last of them has none. The rest are
    the first blocks, None for never, at which:
    ``alarm``: growth beyond text-only tokens was certain; ``small``: it was, but small; ``critical``: it was, large and
    near harm; ``alone``: the post-tool level alone had certainly grown; ``lone_warning``: it had by more than
    :data:`LONE_GROWTH`.
    """

    pair: str
    warm_up: int
    steps_per_block: int
    blocks: Chosen = field(init=False)
    contrasted: Chosen = field(init=False)
    unusable: int = 0
    why_unusable: str = ""
    alarm: Block | None = None
    small: Block | None = None
    alone: Block | None = None
    critical: Block | None = None
    lone_warning: Block | None = None
    highest: float = 0.0
    """The largest evidence of growth beyond text-only tokens."""
    at_alarm: Mapping[str, Change] | None = None
    """State of the aggregates at the alarm, once it was asked for."""
    level: GrowthBeyond = field(init=False)
    shape: GrowthBeyond = field(init=False)
    _log_p99: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=TREND_BLOCKS))
    _read: int = 0
    _last: Block | None = None

    def __post_init__(self) -> None:
        self.level, self.shape = GrowthBeyond(self.steps_per_block), GrowthBeyond(self.steps_per_block)
        self.blocks, self.contrasted = Chosen(), Chosen()

    def extend(self, blocks: Sequence[Block]) -> bool:
        """Read the blocks that are new; False when those read before are not the start of ``blocks``."""
        if self._read > len(blocks) or (self._read and blocks[self._read - 1] != self._last):
            return False
        self.blocks.of = self.contrasted.of = blocks
        for place in range(self._read, len(blocks)):
            block = blocks[place]
            if block.first_step > self.warm_up and self.pair in block.sketches:
                self._take(block, place)
        self._read, self._last = len(blocks), blocks[-1] if blocks else None
        return True

    @property
    def comparable(self) -> bool:
        """Whether enough blocks, and some of the latest, can be compared with text-only tokens."""
        return self.enough(self.contrasted)

    def enough(self, blocks: Sequence[Block]) -> bool:
        """Whether there are enough of these blocks, and one of them is among the latest of the run."""
        if len(blocks) < ENOUGH_BLOCKS or self._last is None:
            return False
        return self._last.last_step - blocks[-1].last_step < LATEST_BLOCKS * self.steps_per_block

    @property
    def evidence(self) -> float:
        """Evidence of growth beyond text-only tokens: the mean of that of the level and that of the shape."""
        return (self.level.evidence + self.shape.evidence) / 2

    @property
    def growth(self) -> float:
        """By what factor the post-tool tail has grown, on its own and beyond text-only tokens (the smaller)."""
        return math.exp(self.level.size)

    @property
    def text_growth(self) -> float:
        """By what factor the text-only tail has grown."""
        return math.exp(self.level.own.size - self.level.beyond.size)

    @property
    def slope(self) -> float:
        """The trend of p99 after tool results: slope of log p99 per 100 steps over the latest blocks (Theil–Sen)."""
        steps, values = zip(*self._log_p99, strict=True)
        return 100 * theil_sen(steps, values)

    @property
    def steps_to_harm(self) -> float:
        """Steps until p99 after tool results reaches :data:`HARMFUL_P99` at its present slope; 0 from there on."""
        steps, values = zip(*self._log_p99, strict=True)
        slope = theil_sen(steps, values)
        now = sorted(value + slope * (steps[-1] - step) for step, value in zip(steps, values, strict=True))
        missing = math.log(HARMFUL_P99) - now[len(now) // 2]
        return 0.0 if missing <= 0 else missing / slope if slope > 0 else math.inf

    def _take(self, block: Block, place: int) -> None:
        reading = _read(block, self.pair)
        if not reading.level_beyond.ok:
            self.unusable += 1
            self.why_unusable = reading.level_beyond.reason
        if not reading.level.ok:
            return
        self.blocks.places.append(place)
        self.level.update(reading.level, reading.level_beyond)
        self.shape.update(reading.shape, reading.shape_beyond)
        self._log_p99.append((block.middle_step, math.log(reading.p99)))
        self._judge_alone(block)
        if reading.level_beyond.ok:
            self.contrasted.places.append(place)
            self._judge(block)

    def _judge_alone(self, block: Block) -> None:
        level = self.level.own
        growth = math.exp(level.size)  # NaN, which no comparison passes, while there is no reference
        if not (level.errors >= STANDARD_ERRORS and growth >= MINIMUM_GROWTH):
            return
        if level.evidence >= self._threshold(WARNING_STEPS):
            self.alone = self.alone or block
        if growth >= LONE_GROWTH and level.evidence >= self._threshold(CRITICAL_STEPS):
            self.lone_warning = self.lone_warning or block

    def _judge(self, block: Block) -> None:
        evidence, growth = self.evidence, self.growth
        self.highest = max(self.highest, evidence)
        if evidence < self._threshold(WARNING_STEPS):
            return
        level, shape = (part.errors >= STANDARD_ERRORS for part in (self.level, self.shape))
        if growth < MINIMUM_GROWTH:
            self.small = self.small or (block if level else None)
            return
        if not (level or shape):
            return
        self.alarm = self.alarm or block
        severe = evidence >= self._threshold(CRITICAL_STEPS) and growth >= CRITICAL_GROWTH
        if self.critical is None and severe and self.steps_to_harm <= HORIZON:
            self.critical = block

    def _threshold(self, steps_per_false_alarm: int) -> float:
        return threshold(self.steps_per_block, steps_per_false_alarm)


def tail_course(run: Run, pair: str) -> TailCourse:
    """Return the course of a pair's tail after the warm-up; a pass over a live run reads only its new blocks."""
    # The first and the last block may be cut short.
    lengths = [block.last_step - block.first_step + 1 for block in (*run.blocks[:2], *run.blocks[-2:])]
    warm_up, steps_per_block = warm_up_steps(run), max(lengths, default=1)
    known = run.derived.get("tail")
    if (
        isinstance(known, TailCourse)
        and (known.pair, known.warm_up, known.steps_per_block) == (pair, warm_up, steps_per_block)
        and known.extend(run.blocks)
    ):
        return known
    course = run.derived["tail"] = TailCourse(pair, warm_up, steps_per_block)
    course.extend(run.blocks)
    return course


def reading_key(pair: str) -> str:
    """Return the name in :attr:`Block.derived` under which the :class:`TailReading` of a pair is kept."""
    return sys.intern(f"tail of {pair}")  # one string for all blocks of a long run


def _read(block: Block, pair: str) -> TailReading:
    """Read a block once: a course that starts again, because the warm-up turned out longer, decodes nothing."""
    key = reading_key(pair)
    if key not in block.derived:
        sketch = block.sketches[pair]
        post, text = (tail_level(sketch, name) for name in (POST_TOOL, TEXT_ONLY))
        post_shape, text_shape = tail_shape(sketch, POST_TOOL, post), tail_shape(sketch, TEXT_ONLY, text)
        p99 = sketch.quantile(0.99, POST_TOOL).value
        shape_beyond = tail_contrast(post_shape, text_shape)
        block.derived[key] = TailReading(post, tail_contrast(post, text), post_shape, shape_beyond, p99)
    found: TailReading = block.derived[key]
    return found
