"""Verifying and measuring: from artifacts to a trial."""
