"""The actions of `kernloom recipe`."""
