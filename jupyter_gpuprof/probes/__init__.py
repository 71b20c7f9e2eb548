"""The hands: the only folder that touches torch, NVML, processes and trace files."""
