"""The winners of a study as C sources that need no Kernloom: variants, dispatch, a test."""

MANIFEST = "kernloom-export.json"
"""File that marks a folder as an export, which may be written again."""
