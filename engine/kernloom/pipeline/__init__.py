"""Pipelines: graphs of named stages, parsed, checked, ordered and executed."""
