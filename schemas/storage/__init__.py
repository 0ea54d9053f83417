"""Reads and writes files by path, on local disk and on Google Cloud Storage.

Import the room with `from schemas import storage`, then call `storage.read_bytes(path)`: the same functions take local
paths and gs:// addresses. Every error names the file that it is about.
"""

from schemas.storage.gcs import split_address
from schemas.storage.listing import (
    FILE_KEYS,
    ListedFile,
    Listing,
    check_apart,
    check_names,
    duplicate_note,
    expand,
    file_key,
    first_lines,
    identity,
    list_files,
    name_hash,
    print_notes,
)
from schemas.storage.local import lock, sync_folder
from schemas.storage.new_file import NewFile
from schemas.storage.paths import (
    check_addresses,
    check_output,
    check_scheme,
    delete,
    exists,
    for_each,
    is_local,
    join,
    listdir,
    open_read,
    read_bytes,
    read_chunks,
    stat,
    wrap_errors,
    write_bytes,
)
from schemas.storage.store import FileStat, check_version

__all__ = [
    "FILE_KEYS",
    "FileStat",
    "ListedFile",
    "Listing",
    "NewFile",
    "check_addresses",
    "check_apart",
    "check_names",
    "check_output",
    "check_scheme",
    "check_version",
    "content",
    "delete",
    "duplicate_note",
    "exists",
    "expand",
    "file_key",
    "first_lines",
    "folders",
    "for_each",
    "gcs_access",
    "identity",
    "is_local",
    "join",
    "json_files",
    "list_files",
    "listdir",
    "local",
    "lock",
    "name_hash",
    "open_read",
    "paths",
    "print_notes",
    "read_bytes",
    "read_chunks",
    "split_address",
    "stat",
    "store",
    "sync_folder",
    "tfrecord",
    "wrap_errors",
    "write_bytes",
]
