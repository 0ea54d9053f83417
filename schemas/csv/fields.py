"""Splits a single record into fields, with the rules of Python's csv module."""

from __future__ import annotations

UNTERMINATED = "unterminated_quote"
STRAY_QUOTE = "stray_quote"
STRAY_RETURN = "stray_carriage_return"


def split_fields(record: bytes, delimiter: str, quote: str) -> list[bytes] | str:
    """Splits one record (without its line end) into fields.

    The rules are those of `csv.reader` with its defaults: a quote opens a quoted field only at the field's start, and a
    doubled quote inside means one quote. Unlike `csv.reader`, this works on bytes and has no maximum field size.

    Returns:
        The fields, or why the record has none: "unterminated_quote" if a quote never closes; "stray_quote" if more than
        white space follows a closing quote (`csv.reader` silently joins both parts); "stray_carriage_return" for a
        carriage return outside quotes, which cannot occur inside a line.
    """
    d, q = delimiter.encode(), quote.encode()
    fields: list[bytes] = []
    position, size = 0, len(record)
    while True:
        field, closed = b"", False
        if record.startswith(q, position):
            parts = []
            position += 1
            while True:
                close = record.find(q, position)
                if close < 0:
                    return UNTERMINATED
                parts.append(record[position:close])
                position = close + 1
                if not record.startswith(q, position):
                    break
                parts.append(q)
                position += 1
            field, closed = b"".join(parts), True
        end = record.find(d, position)
        plain = record[position : size if end < 0 else end]
        if b"\r" in plain:
            return STRAY_RETURN
        if closed and plain.strip():
            return STRAY_QUOTE
        fields.append(field + plain)
        if end < 0:
            return fields
        position = end + 1


def join_fields(fields: list[bytes], delimiter: str, quote: str) -> bytes:
    """A line that every CSV reader parses to these fields: all of them are quoted."""
    d, q = delimiter.encode(), quote.encode()
    return d.join(q + field.replace(q, q + q) + q for field in fields)
