"""One record's fields, read by itself as Python's csv module reads it."""

from __future__ import annotations

UNTERMINATED = "unterminated_quote"
STRAY_QUOTE = "stray_quote"
STRAY_RETURN = "stray_carriage_return"


def split_fields(record: bytes, delimiter: str, quote: str) -> list[bytes] | str:
    """The fields of one record without its line end, or the reason why it has none.

    The rules are those of `csv.reader` with its defaults: a quote opens a quoted field at the field's start only, a
    doubled quote inside stands for one. Unlike `csv.reader` it works on bytes, knows no largest field, and returns
    "unterminated_quote" for a quote that never closes, and "stray_quote" where more than white space follows a
    closing quote: csv.reader would join the two, and nobody could tell what was meant. A carriage
    return outside quotes is "stray_carriage_return": where records are lines, none may stand inside one.
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
    """One line that every CSV reader takes for these fields: each of them quoted."""
    d, q = delimiter.encode(), quote.encode()
    return d.join(q + field.replace(q, q + q) + q for field in fields)
