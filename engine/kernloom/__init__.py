"""Kernloom: describe a kernel, a target and a toolchain; build, run, verify, measure, replay."""

__version__ = "0.1.0"
