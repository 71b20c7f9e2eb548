"""A door: the IPython magics."""
