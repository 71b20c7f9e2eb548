"""Checkpoints: what they cost, and such as work."""
