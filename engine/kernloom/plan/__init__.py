"""Planning: everything that an experiment needs built and run, decided before it starts."""
