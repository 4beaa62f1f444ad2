"""The engine: plans experiments and runs trials."""
