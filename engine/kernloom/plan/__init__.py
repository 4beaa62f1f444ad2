"""What an experiment needs built and run, decided before anything is done."""
