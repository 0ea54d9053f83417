"""Files by path, on local disk, on Google Cloud Storage and on S3, each a class of `schemas.storage.store.Store`.

`from schemas import storage`, and then `storage.read_bytes(path)`, whatever the path. An error names its file.
"""

from schemas.storage.inputs import (
    check_apart,
    check_names,
    duplicate_note,
    few,
    identity,
    print_duplicates,
    print_notes,
)
from schemas.storage.listing import FILE_KEYS, ListedFile, Listing, expand, file_key, list_files, name_hash
from schemas.storage.local import open_at_once, sync_folder
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
    stat,
    tensorflow_reads,
    wrap_errors,
    write_bytes,
)
from schemas.storage.store import FileStat, check_version, split_address

__all__ = [
    "FILE_KEYS",
    "FileStat",
    "ListedFile",
    "Listing",
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
    "few",
    "file_key",
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
    "name_hash",
    "open_at_once",
    "open_read",
    "paths",
    "print_duplicates",
    "print_notes",
    "read_bytes",
    "split_address",
    "stat",
    "store",
    "sync_folder",
    "tensorflow_reads",
    "tfrecord",
    "wrap_errors",
    "write_bytes",
]
