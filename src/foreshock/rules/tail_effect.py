"""How large the growth of a tail is: early, middle and late blocks side by side, its trend, and when it does harm."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from foreshock.batch import POST_TOOL, SLICES, TEXT_ONLY
from foreshock.detect.growth import LATEST_BLOCKS, Growth
from foreshock.detect.tail import TAIL_SHARE
from foreshock.rules.tail_course import HARMFUL_P99, TREND_BLOCKS, TailCourse
from foreshock.run import Block, merge_pair
from foreshock.sketch import LogRatioSketch


@dataclass(frozen=True, slots=True)
class Effect:
    """Merged sketches of the early, middle and late blocks of a course; the middle is missing in a short run.

    ``late`` are the blocks of the late part, ``steps`` the first and last step of each part.
    """

    course: TailCourse
    slices: Sequence[str]
    late: Sequence[Block]
    parts: dict[str, LogRatioSketch]
    steps: dict[str, tuple[int, int]]

    def p99(self, part: str, slice_name: str) -> float:
        """p99 of |r| in nats."""
        return self.parts[part].quantile(0.99, slice_name).value

    def p99_growth(self, slice_name: str) -> float:
        """By what factor p99 of |r| has grown from the early to the late blocks."""
        return self.p99("late", slice_name) / self.p99("early", slice_name)

    def growth_sentence(self) -> str:
        """Say by how much the tail has grown."""
        first, last = self.steps["early"]
        grown = f"p99 of |log-ratio {self.course.pair}| has grown ×{self.p99_growth(POST_TOOL):.2f}"
        beside = f", in text-only contexts ×{self.p99_growth(TEXT_ONLY):.2f}" if TEXT_ONLY in self.slices else ""
        return f"After tool results, {grown} since steps {first}–{last}{beside}."

    def trend_sentence(self) -> str:
        """Say how fast p99 grows at present, and when that reaches the bound of harm."""
        steps, rate = self.course.steps_to_harm, math.exp(self.course.slope)
        bound = f"{HARMFUL_P99:g} nats, an importance ratio of {math.exp(HARMFUL_P99):.0f} (a heuristic bound of harm)"
        if steps == 0:
            return f"It is beyond {bound}; the latest trend is ×{rate:.2f} per 100 steps."
        if math.isinf(steps):
            return f"It has not grown further over the last {TREND_BLOCKS} blocks."
        return f"At the latest trend, ×{rate:.2f} per 100 steps, it reaches {bound} in about {_rounded(steps)} steps."

    def rows(self) -> tuple[dict[str, object], ...]:
        """Return a table: one row a part and slice."""
        return tuple(self._row(part, name) for part in self.parts for name in self.slices)

    def _row(self, part: str, name: str) -> dict[str, object]:
        sketch, early = self.parts[part], self.parts["early"]
        return {
            "segment": part,
            "steps": "{}–{}".format(*self.steps[part]),
            "slice": name,
            "tokens": sketch.n(name),
            "p99": sketch.quantile(0.99, name).value,
            "p99.9": sketch.quantile(0.999, name).value,
            "beyond early p99": sketch.tail_mass(self.p99("early", name), name).value,
            "tail moved by": sketch.tail_distance(early, TAIL_SHARE, name).value,
            "ESS/n": sketch.ess_share(name, cap=3.0).value,
        }


def effect_of(course: TailCourse, blocks: Sequence[Block], growth: Growth, slices: Sequence[str] = SLICES) -> Effect:
    """Compare the reference blocks of a growth with the latest ones and with as many from halfway between."""
    reference, latest = blocks[: growth.reference], blocks[-LATEST_BLOCKS:]
    between = len(blocks) - growth.reference - LATEST_BLOCKS
    chosen = {"early": reference, "late": latest}
    if between >= LATEST_BLOCKS:
        start = growth.reference + (between - LATEST_BLOCKS) // 2
        chosen = {"early": reference, "middle": blocks[start : start + LATEST_BLOCKS], "late": latest}
    merged = {part: merge_pair(some, course.pair) for part, some in chosen.items()}
    return Effect(
        course=course,
        slices=slices,
        late=latest,
        parts={part: sketch for part, sketch in merged.items() if sketch is not None},
        steps={part: (some[0].first_step, some[-1].last_step) for part, some in chosen.items()},
    )


def _rounded(steps: float) -> int:
    """Round to two leading digits: a projection knows no more."""
    unit = int(10 ** max(0, math.floor(math.log10(max(steps, 1.0))) - 1))
    return max(unit, round(steps / unit) * unit)
