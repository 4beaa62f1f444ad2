"""Tuning: search strategies, and the studies that use them."""
