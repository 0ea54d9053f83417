"""CSV files: byte ranges to Arrow batches of raw columns; every record becomes a row or a reject."""

__all__ = [
    "columns",
    "file",
    "header",
    "lines",
    "parse",
    "reader",
    "rows",
    "stream",
    "text",
    "values",
]
