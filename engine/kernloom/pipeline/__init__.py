"""Graphs of named stages: read, checked, ordered, carried out."""
