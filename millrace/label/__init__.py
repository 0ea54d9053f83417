"""Joins labels that came later to the requests that a server has stored, and writes files that preprocessing takes.

command   the command `millrace label`
labels    files of labels, read into a temporary table
joining   assigns each labelled row to one output
outputs   writes labelled rows as a file, or as folders of images
"""

__all__ = ["command"]
