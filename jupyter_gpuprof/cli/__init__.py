"""A door: the command ``jupyter gpuprof``."""
