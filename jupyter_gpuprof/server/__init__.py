"""Door: the Jupyter server's extension: who holds which device, and the reaper of idle holders."""
