"""Agent traces: what an agent said and did, judged episode by episode, and made into data sets."""

from __future__ import annotations

from foreshock.traces.checks import check
from foreshock.traces.episode import Episode, ToolCall, Traces
from foreshock.traces.read import describe, is_traces, read_traces

__all__ = ["Episode", "ToolCall", "Traces", "check", "describe", "is_traces", "read_traces"]
