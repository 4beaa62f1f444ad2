"""Reports of trials, for people and for programs."""
