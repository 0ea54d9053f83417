"""Faults that the tests must find: `python -m tests.faults` puts each into a copy of the code, and tests it."""
