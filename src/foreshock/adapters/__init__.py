"""Adapters: the only rooms that know a training framework."""
