"""The command `millrace` and the Python API: thin over `schemas`, `beam_jobs` and `trainer`."""
