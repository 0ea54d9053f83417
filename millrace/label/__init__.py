"""Labels that came later, joined to the requests that a server has stored: files that preprocessing takes.

command   the command `millrace label`
labels    files of labels, read into a temporary table
joining   which stored rows get their label now, each once
outputs   the labelled rows as a file, or as folders of images
"""

__all__ = ["command"]
