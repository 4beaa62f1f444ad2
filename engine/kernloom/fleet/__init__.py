"""Fleets: where trials run, on this machine or a cluster."""
