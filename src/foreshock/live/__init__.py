"""The in-stream monitor: cadence, merging over workers, control."""
