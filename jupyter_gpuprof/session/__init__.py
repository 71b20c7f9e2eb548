"""The conductors: the only place where probes, store and analysis meet."""
