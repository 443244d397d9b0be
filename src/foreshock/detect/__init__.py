"""Change detectors over block statistics."""
