"""Shared helpers that every package may import: errors, files, places, expressions, registries."""
