"""For Dataflow's --setup_file, which wants a setup.py; everything about the package is in pyproject.toml."""

from setuptools import setup

setup()
