"""Artifacts named by what went into them; SCons makes the missing ones."""
