"""A cell again, in fresh processes: with a change, at other sizes, on other device counts."""
