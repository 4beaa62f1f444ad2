"""Builds of artifacts, named by the hash of their inputs; SCons makes the missing ones."""
