"""A Slurm cluster: trials in tasks of job arrays."""
