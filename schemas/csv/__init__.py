"""CSV files: byte ranges to Arrow batches of raw columns; every record becomes a row or a reject."""

__all__ = ["corrections", "fields", "file", "header", "lookup", "numbers", "reader", "stream", "strings"]
