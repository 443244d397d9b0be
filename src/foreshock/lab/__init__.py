"""The reproduction experiment: a real TRL trainer on a tiny policy that looks things up with a tool.

Nothing is imported here: torch and TRL load only when a module of this package is asked for.
"""
