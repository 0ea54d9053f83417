"""The requests that a server answered, stored before the answers leave. `millrace.label` reads them again.

rows       a batch of answered requests, and its rows as they are stored
database   the store's folder: a SQLite file, image files, and a lock
store      the thread that stores batches in groups and answers repeated requests
"""

__all__ = ["database", "rows", "store"]
