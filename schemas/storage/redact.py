"""Removes secrets from messages of other libraries, such as keys in the addresses of failed requests."""

from __future__ import annotations

import re

HIDDEN = "<hidden>"
_RULES = (
    (re.compile(r"(https?://[^\s?#'\"<>]*\?)[^\s'\"<>]+"), rf"\1{HIDDEN}"),  # a signed address, an upload's session
    (re.compile(r"(\b[a-z][a-z0-9+.-]*://)[^\s/@'\"<>]+@"), rf"\1{HIDDEN}@"),  # user:password@
    (re.compile(r"(?i)\b(Bearer|Basic)\s+[\w.~+/=-]{8,}"), rf"\1 {HIDDEN}"),
    (re.compile(r"\bya29\.[\w.-]+|\bAIza[\w-]{20,}|\bAKIA[0-9A-Z]{12,}"), HIDDEN),  # Google's tokens and keys, Amazon's
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL), HIDDEN),
)


def redacted(text: str) -> str:
    """The text with the queries of web addresses, passwords in addresses, bearer tokens and private keys left out."""
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return text
