"""Search spaces: axes, constraints, solving, samples."""
