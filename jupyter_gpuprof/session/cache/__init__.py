"""Results that are computed once and read back: `cached`, and what the doors do with the cache."""
