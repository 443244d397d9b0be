"""The block statistics of the tail detector: how far the tail of |r| reaches in one slice, and beyond that of another.

The tail level of a slice is the mean of log |r| over its largest 2 % of tokens. It equals log p98 + ξ, where ξ is the
Hill estimate of the tail index from the same tokens (Hill, 1975), so it rises both when the whole slice stretches
(|r| times c adds log c) and when the tail alone grows heavier, and no single quantile decides. Being a mean of
logarithms it is not ruled by the largest token either.

The tail shape of a slice is its tail level minus log p90 of |r|: how far its largest tokens stand out from its others.
Whatever multiplies |r| in the whole slice drops out. So does most of the noise that the tokens of a step share, and so
does the growth of a slice that stretches as a whole, which only the level shows.

The contrast of either is its value in ``post_tool`` minus that in ``text_only``: logarithms of the same unit, so
whatever moves both slices alike (ordinary learning) drops out.
"""

from __future__ import annotations

from math import log

from foreshock.sketch import LogRatioSketch
from foreshock.stats.diagnostic import Diagnostic

MINIMUM_TOKENS = 500
"""Finite tokens that a slice of a block must hold: its tail is then at least ten of them."""

TAIL_SHARE = 0.02
"""Share of the tokens of a slice, those with the largest |r|, that make its tail."""

BULK = 0.9
"""Quantile of |r| that the tail of the same slice is compared with; a lower one is often zero."""


def tail_level(sketch: LogRatioSketch, slice_name: str) -> Diagnostic:
    """Return the tail level of one slice, the mean of log |r| over its top 2 %.

    NaN with a reason below :data:`MINIMUM_TOKENS` tokens, or when the tail holds zeros.
    """
    n = sketch.n(slice_name)
    if n < MINIMUM_TOKENS:
        return Diagnostic.unknown(n, f"{slice_name} holds {n} tokens in this block; its tail needs {MINIMUM_TOKENS}")
    threshold = sketch.quantile(1 - TAIL_SHARE, slice_name)
    if not threshold.value > 0:
        zeros = f"{1 - TAIL_SHARE:.0%} of the log-ratios are zero, so there is no tail yet"
        return Diagnostic.unknown(n, f"{slice_name}: {zeros}")
    hill = sketch.hill(slice_name, share=TAIL_SHARE)
    if not hill.ok:
        return Diagnostic.unknown(n, f"{slice_name}: {hill.reason}")
    return Diagnostic(log(threshold.value) + hill.value, n)


def tail_shape(sketch: LogRatioSketch, slice_name: str, level: Diagnostic) -> Diagnostic:
    """Return the tail shape of one slice, given its tail level: the level minus log p90 of |r|.

    NaN with a reason when the slice has no tail level, or when p90 is zero.
    """
    if not level.ok:
        return level
    bulk = sketch.quantile(BULK, slice_name).value
    if not bulk > 0:
        return Diagnostic.unknown(level.n, f"{slice_name}: {BULK:.0%} of the log-ratios are zero")
    return Diagnostic(level.value - log(bulk), level.n)


def tail_contrast(post: Diagnostic, text: Diagnostic) -> Diagnostic:
    """Return the tail level or shape of one slice minus that of another; e to its power is a ratio of tails.

    ``n`` is the smaller of the two token counts. NaN with a reason when either slice cannot be judged: such a block
    is skipped by the detector and counted, never taken as healthy.
    """
    reason = "; ".join(part.reason for part in (post, text) if part.reason)
    return Diagnostic(post.value - text.value, min(post.n, text.n), reason)
