"""The thinking: records in, records out. No clock, no device, no file."""
