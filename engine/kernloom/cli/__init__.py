"""The command line, the only package that may import all others."""

from kernloom.cli.main import main

__all__ = ["main"]
