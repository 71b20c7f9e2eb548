"""The memory: one SQLite file."""
