"""Fleets: where trials are carried out, this machine or a cluster."""
