"""CSV files: byte ranges to Arrow batches of raw columns; every record becomes a row or a reject."""

__all__ = [
    "binary",
    "columns",
    "corrections",
    "fields",
    "file",
    "header",
    "lines",
    "lookup",
    "numbers",
    "parse",
    "reader",
    "rows",
    "stream",
    "strings",
    "text",
]
