"""Millrace beside the common alternatives, on the same inputs.

`contests` is the table of what is measured, `inputs` makes the files, `candidates` holds the code of every way to do
the work, `run` measures them in turns and stores `results.json`, and `report` writes the pages and plots from that.
"""
