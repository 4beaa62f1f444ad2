"""The engine: plans experiments and carries trials out."""
