"""The command line: the only place that knows the whole line."""

from kernloom.cli.main import main

__all__ = ["main"]
