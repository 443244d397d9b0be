"""Mismatch by slice: sampler and trainer disagree on single tokens, and where tells why.

What: in the first blocks, response tokens have a sampler log-probability of exactly 0 that the trainer gives less than
one half; or the share of tokens with a |log-ratio| of trainer over sampler above 1 nat is high after tool results, or
everywhere; or the mean ratio is off 1 from the start.
Why it matters: a gap after tool results alone, at the first step, means that the history was decoded and encoded
again, so that other tokens are scored than were sampled. A gap everywhere means the engine. A 0 is what rollouts carry
on tool results, so zeros among the trained tokens mean that the mask lets tool results in.
Known problems: it needs recorded log-probabilities of the sampler and 500 tokens a slice. A policy that was already
updated between sampling and scoring (many updates a batch) shows a gap that is none of these. A sampler that keeps one
token only (top-k of 1) is rightly certain of it. Tool results inside the mask whose log-probabilities are not 0 are
seen by ``foreshock audit`` alone.
Example: "In the first blocks 4.1% of the post-tool tokens differ by more than 1 nat between trainer and sampler, and
0.02% of the text-only ones: as if tool turns had been tokenised again."
Options: none.
References: Liu et al., "When speed kills stability" (2025, richardli.xyz/rl-collapse), on sources of the mismatch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from foreshock.batch import OLD_ROLLOUT, POLICY_ROLLOUT, POST_TOOL, SLICES, TEXT_ONLY
from foreshock.rules.cause_names import ENGINE_MISMATCH, MASK_ERROR, RETOKENISATION, TRUNCATED_SUPPORT
from foreshock.rules.finding import Finding, RuleResult
from foreshock.rules.mismatch import ADVICE_BIAS, CHECK_BIAS
from foreshock.run import Block, Run, merge_pair
from foreshock.sketch import LogRatioSketch

ID = "mismatch-by-slice"

NEEDS = "token records of old/rollout or policy/rollout"

SEVERITIES = ("warning", "critical")

BLOCKS = 3
"""First blocks that are judged: before the policy has moved far."""

LARGE = 1.0
"""|log-ratio| in nats that numerics alone hardly reach."""

ENOUGH = 500
"""Tokens that a slice must hold."""

GAP, CRITICAL = 0.01, 0.05
"""Share of tokens beyond it that is a warning, and critical (heuristics)."""

CONTRAST = 10.0
"""Post-tool share over text-only share from which on the gap is one after tool results alone (heuristic)."""

UNSCORED = 0.001
"""Share of response tokens without a log-probability of the sampler that is a warning (heuristic)."""

BIAS = 0.03
"""Distance of the mean ratio from 1, in every slice, that is a constant bias (heuristic)."""

CERTAINTY = "Its levels are heuristics; what makes the gap is the likeliest reading of where it stands."


def check(run: Run) -> RuleResult:
    """Judge the first blocks of the pair between trainer and sampler."""
    pair = next((pair for pair in (OLD_ROLLOUT, POLICY_ROLLOUT) if pair in run.pairs), None)
    if pair is None:
        return RuleResult()
    blocks = list(islice((block for block in run.blocks if pair in block.sketches), BLOCKS))
    sketch = merge_pair(blocks, pair)
    assert sketch is not None
    shares = {name: sketch.tail_mass(LARGE, name).value for name in SLICES if sketch.n(name) >= ENOUGH}
    if not shares:
        return RuleResult()
    told = _mask_error(blocks) or _gap(shares) or _bias(sketch, list(shares))
    if told is None:
        return RuleResult(judged=(f"trainer and sampler score the same tokens in the first blocks ({pair})",))
    finding = Finding(
        rule=ID,
        severity=told.severity,
        summary=told.summary,
        steps=(blocks[0].first_step, run.last_step),
        slice=told.slice,
        evidence=_rows(sketch, blocks),
        certainty=CERTAINTY,
        cause=ENGINE_MISMATCH,
        advice=told.advice,
        next_check=told.next_check,
        name=told.name,
    )
    return RuleResult((finding,))


class _Told(NamedTuple):
    """What one reading of the first blocks says."""

    severity: str
    summary: str
    advice: str
    next_check: str
    name: str = ""
    slice: str = ""


def _mask_error(blocks: Sequence[Block]) -> _Told | None:
    count = sum(block.total("unscored_tokens") for block in blocks)
    share = count / max(sum(block.total("response_tokens") for block in blocks), 1.0)
    if share < UNSCORED:
        return None
    return _Told(
        "critical" if share >= CRITICAL else "warning",
        f"In the first blocks {share:.2%} of the response tokens have a sampler log-probability of exactly 0 that the "
        "trainer gives less than one half: placeholders, as tool results carry them, inside the response mask.",
        "Set the mask to 0 on every token that the policy did not sample (env_mask of a rollout function in TRL).",
        "Print one trained row with its mask, or dump a few steps and run foreshock audit on them: which tokens are 0?",
        MASK_ERROR,
    )


def _gap(shares: Mapping[str, float]) -> _Told | None:
    post, text = shares.get(POST_TOOL, 0.0), shares.get(TEXT_ONLY)
    worst = max(shares.values())
    if worst < GAP:
        return None
    severity = "critical" if worst >= CRITICAL else "warning"
    if text is not None and post >= CONTRAST * text:
        return _Told(
            severity,
            f"In the first blocks {post:.2%} of the post-tool tokens differ by more than {LARGE:g} nat between trainer "
            f"and sampler, and {text:.2%} of the text-only ones: as if tool turns had been tokenised again.",
            "Keep the sampled token ids of every turn instead of encoding the decoded history again.",
            "Compare the token ids that were sampled with those that are scored, for one completion with a tool call.",
            RETOKENISATION,
            POST_TOOL,
        )
    where = " and ".join(f"{share:.2%} of the {name} tokens" for name, share in shares.items())
    return _Told(
        severity,
        f"In the first blocks {where} differ by more than {LARGE:g} nat between trainer and sampler: the engine, the "
        "weights or the mask, not the tool turns.",
        "Match precision and attention kernels, and check that both sides hold the same weights.",
        "Score one text-only completion by trainer and sampler with the same weights, in float32.",
    )


def _bias(sketch: LogRatioSketch, names: Sequence[str]) -> _Told | None:
    """Look for a mean ratio below 1: k3 − k1 = E[ρ] − 1, with tokens drawn from the sampler."""
    offsets = [sketch.kl_k3(name, "denominator").value - sketch.kl_k1(name, "denominator").value for name in names]
    if max(offsets) > -BIAS:
        return None
    means = " and ".join(f"{1 + offset:.3f} ({name})" for name, offset in zip(names, offsets, strict=True))
    return _Told(
        "warning",
        f"The mean ratio of trainer over sampler is {means} in the first blocks: a bias, not drift. Log-probabilities "
        "that the sampler renormalises over top-p or top-k do this.",
        ADVICE_BIAS,
        CHECK_BIAS,
        TRUNCATED_SUPPORT,
    )


def _rows(sketch: LogRatioSketch, blocks: Sequence[Block]) -> tuple[dict[str, Any], ...]:
    steps = f"{blocks[0].first_step}–{blocks[-1].last_step}"
    return tuple(
        {
            "slice": name,
            "steps": steps,
            "tokens": sketch.n(name),
            "beyond 1 nat": sketch.tail_mass(LARGE, name).value,
            "p50": sketch.quantile(0.5, name).value,
            "p99": sketch.quantile(0.99, name).value,
            "mean": sketch.mean(name).value,
        }
        for name in SLICES
    )
