"""A block: the merged sketches of a few steps, the unit of the detectors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import chain, pairwise
from operator import attrgetter
from typing import Any

from foreshock.errors import CorruptRecord
from foreshock.sketch import LogRatioSketch, codec


@dataclass(frozen=True, slots=True)
class TopToken:
    """One response token with a large |log-ratio|.

    ``log_ratio`` in nats. ``turn`` counts the stretches of observation tokens before it, ``position`` the response
    tokens before it in its turn. ``token`` and ``previous`` are ids, −1 for "none before it"; the texts are empty when
    unknown. ``tool`` is the name of the tool whose result came last before it, empty when none did or it is unknown.
    """

    log_ratio: float
    step: int
    turn: int
    position: int
    token: int
    previous: int
    text: str = ""
    previous_text: str = ""
    tool: str = ""

    @classmethod
    def from_record(cls, values: Sequence[Any]) -> TopToken:
        """Rebuild a token from the list of its fields, in order."""
        log_ratio, step, turn, position, token, previous, *texts = values
        places = int(step), int(turn), int(position)
        return cls(float(log_ratio), *places, int(token), int(previous), *map(str, texts))


_values = attrgetter(*(part.name for part in fields(TopToken)))


class EncodedSketches(Mapping[str, LogRatioSketch]):
    """Sketches by pair, kept as the text that stands on disk and decoded on each access.

    A few kilobytes instead of a hundred a pair, so that a run of any length that is being watched fits in memory.
    """

    def __init__(self, texts: Mapping[str, str]) -> None:
        self.texts = dict(texts)

    @classmethod
    def of(cls, sketches: Mapping[str, LogRatioSketch]) -> EncodedSketches:
        """Encode sketches."""
        return cls({pair: codec.encode(sketch) for pair, sketch in sketches.items()})

    def __getitem__(self, pair: str) -> LogRatioSketch:
        return codec.decode(self.texts[pair])

    def __contains__(self, pair: object) -> bool:
        return pair in self.texts

    def __iter__(self) -> Iterator[str]:
        return iter(self.texts)

    def __len__(self) -> int:
        return len(self.texts)


@dataclass(frozen=True, slots=True)
class Block:
    """The merged sketches of the optimizer steps ``first_step`` to ``last_step``, both included.

    ``sketches``: one per pair, over all workers. ``workers``: how many took part.
    ``counters``: per-step counts over all workers, each a tuple with one entry a step: ``rows``, ``response_tokens``,
    ``observation_tokens``, ``post_tool_tokens``, ``unscored_tokens`` (the sampler's log-probability is exactly 0 and
    the trainer gives less than one half), ``errors``, ``nonfinite/<tensor>`` and, in the entry of the last step,
    ``workers/<pair>``: how many of the workers had a response token of the pair in this block. ``top``: per built-in
    slice the tokens with the largest |log-ratio| of the judged pair, largest first, at most one a row.
    """

    index: int
    first_step: int
    last_step: int
    sketches: Mapping[str, LogRatioSketch]
    workers: int = 1
    counters: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    top: Mapping[str, tuple[TopToken, ...]] = field(default_factory=dict)
    derived: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """What pure functions of this block returned, by name; of a block on disk nothing is kept."""

    @property
    def middle_step(self) -> float:
        """The step at which a value of this block is drawn."""
        return (self.first_step + self.last_step) / 2

    def total(self, counter: str) -> float:
        """Sum of a counter over the steps of the block; 0 for a counter that was never written."""
        return float(sum(self.counters.get(counter, ())))

    def to_record(self) -> dict[str, Any]:
        """Return the block as plain values, the sketches encoded as text."""
        return {
            "block": self.index,
            "first_step": self.first_step,
            "last_step": self.last_step,
            "workers": self.workers,
            "counters": {name: list(values) for name, values in self.counters.items()},
            "top": {name: [_values(token) for token in tokens] for name, tokens in self.top.items()},
            "sketches": dict(self._encoded().texts),
        }

    def _encoded(self) -> EncodedSketches:
        return self.sketches if isinstance(self.sketches, EncodedSketches) else EncodedSketches.of(self.sketches)

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Block:
        """Rebuild a block from :meth:`to_record`.

        Raises:
            CorruptRecord: a field is missing or of the wrong kind, or a sketch fails its checksum.
        """
        try:
            sketches = EncodedSketches({str(pair): str(text) for pair, text in record["sketches"].items()})
            for pair in sketches:
                codec.decode(sketches.texts[pair])
            return cls(
                index=int(record["block"]),
                first_step=int(record["first_step"]),
                last_step=int(record["last_step"]),
                workers=int(record["workers"]),
                counters={str(name): tuple(map(float, values)) for name, values in record["counters"].items()},
                top={
                    str(name): tuple(TopToken.from_record(token) for token in tokens)
                    for name, tokens in record["top"].items()
                },
                sketches=sketches,
            )
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise CorruptRecord(f"a block record cannot be read ({type(error).__name__}: {error})") from error


def merge_pair(blocks: Sequence[Block], pair: str) -> LogRatioSketch | None:
    """Merge the sketches of one pair over blocks; None when no block has the pair.

    A resume may change the user's slices. Sketches that do not have the slices of the last one are left out.
    """
    having = [block for block in blocks if pair in block.sketches]
    if not having:
        return None
    total = LogRatioSketch.merged([having[-1].sketches[pair]])
    for block in having[:-1]:
        sketch = block.sketches[pair]  # one at a time: a decoded sketch takes a hundred kilobytes
        if sketch.slices == total.slices:
            total.merge(sketch)
    return total


def segments(blocks: Sequence[Block]) -> dict[str, Sequence[Block]]:
    """Split blocks into early, middle and late thirds of the run, leaving out what does not fill a third."""
    third = len(blocks) // 3
    if third == 0:
        return {}
    middle = (len(blocks) - third) // 2
    return {"early": blocks[:third], "middle": blocks[middle : middle + third], "late": blocks[-third:]}


def merged_blocks(blocks: Sequence[Block], most: int) -> list[Block]:
    """Merge neighbouring blocks until at most so many are left, for a picture; each sketch is decoded once.

    They hold their sketches in memory, their counters are those of all steps in a row, ``workers`` is the sum over the
    blocks, and the largest tokens are left out.
    """
    count = min(len(blocks), most)
    bounds = [number * len(blocks) // count for number in range(count + 1)] if count else []
    return [_merged(blocks[start:end]) for start, end in pairwise(bounds)]


def _merged(blocks: Sequence[Block]) -> Block:
    pairs = dict.fromkeys(pair for block in blocks for pair in block.sketches)
    names = dict.fromkeys(name for block in blocks for name in block.counters)
    merged = {pair: merge_pair(blocks, pair) for pair in pairs}
    return Block(
        index=blocks[0].index,
        first_step=blocks[0].first_step,
        last_step=blocks[-1].last_step,
        sketches={pair: sketch for pair, sketch in merged.items() if sketch is not None},
        workers=sum(block.workers for block in blocks),
        counters={name: tuple(chain.from_iterable(block.counters.get(name, ()) for block in blocks)) for name in names},
    )
