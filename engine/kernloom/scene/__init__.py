"""Scenes: tests of workloads on devices, written as Python classes or YAML."""

from kernloom.scene.main import main
from kernloom.scene.scene import Case, Scene

__all__ = ["Case", "Scene", "main"]
