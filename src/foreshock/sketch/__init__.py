"""Fixed-size mergeable summaries of log-ratios. The one that needs torch is in `foreshock.sketch.device`."""

from foreshock.sketch.filling import load_compiled
from foreshock.sketch.log_ratio import LogRatioSketch

__all__ = ["LogRatioSketch", "load_compiled"]
