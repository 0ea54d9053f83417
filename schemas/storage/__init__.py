"""Files by path, on local disk and on Google Cloud Storage, each a class of `schemas.storage.store.Store`.

`from schemas import storage`, and then `storage.read_bytes(path)`, whatever the path. An error names its file.
"""

from schemas.storage.disk import open_at_once, sync_folder
from schemas.storage.inputs import duplicate_note, expand, few, identity, print_duplicates, print_notes
from schemas.storage.paths import (
    check_output,
    check_scheme,
    delete,
    exists,
    is_local,
    join,
    listdir,
    open_read,
    read_bytes,
    stat,
    write_bytes,
)
from schemas.storage.store import FileStat, check_version, wrap_errors

__all__ = [
    "FileStat",
    "check_output",
    "check_scheme",
    "check_version",
    "compare_and_swap",
    "delete",
    "disk_errors",
    "duplicate_note",
    "exists",
    "expand",
    "few",
    "folders",
    "identity",
    "is_local",
    "join",
    "links",
    "listdir",
    "open_at_once",
    "open_read",
    "print_duplicates",
    "print_notes",
    "read_bytes",
    "stat",
    "sync_folder",
    "tfrecord",
    "wrap_errors",
    "write_bytes",
]
