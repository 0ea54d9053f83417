"""Stores the requests that a server answers, before the answers leave; `millrace.label` reads them again.

layout     the raw values of a request as a line of CSV
database   the store's folder: one SQLite file
writer     the thread that stores answered batches in groups, each id once
"""

__all__ = ["database", "layout", "writer"]
