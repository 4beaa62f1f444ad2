"""A cluster that Slurm runs: trials in tasks of job arrays."""
