"""Trials for people and for programs."""
