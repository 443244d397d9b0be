"""Pure statistics on NumPy arrays."""
