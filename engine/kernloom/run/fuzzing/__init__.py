"""Fuzzing: workloads verified for drawn sizes, seeds, contents and alignments."""
