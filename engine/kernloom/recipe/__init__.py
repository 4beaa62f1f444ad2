"""Files from which a run can be replayed."""
