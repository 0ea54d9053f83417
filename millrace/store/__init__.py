"""The requests that a server answered, stored before the answers leave. `millrace.label` reads them again."""

__all__ = [
    "columns",
    "emitted",
    "file_layout",
    "ids",
    "image_files",
    "kept_schemas",
    "options",
    "reading",
    "segment",
    "store",
    "store_folder",
]
