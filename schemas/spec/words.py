"""Gives a category, a key or a class one spelling, whichever way it comes in.

pandas reads the whole numbers of a column with blanks as floats, and `TRUE` as a truth value, so that 2, 2.0, "2" and
"2.0" are the same value to those who send it. Files, requests, rows from Python and lists in a schema all become text
by these rules: a whole number has no `.0`, and a truth value is `True` or `False`.
"""

from __future__ import annotations

import re
from typing import Any

WHOLE = r"([+-]?[0-9]+)\.0*"  # in the syntax of RE2, too, which Arrow and TensorFlow have
TRUTH = {"true": "True", "TRUE": "True", "false": "False", "FALSE": "False"}

_WHOLE = re.compile(WHOLE)
_EXACT = 2.0**53  # a larger float does not tell a whole number from its neighbours


def canonical(text: str) -> str:
    """Returns the spelling of a category, key or class that stands in a file, a list or a request.

    >>> [canonical(text) for text in ("2.0", "-7.", "2.50", "TRUE", "true or false")]
    ['2', '-7', '2.50', 'True', 'true or false']
    """
    whole = _WHOLE.fullmatch(text)
    return whole[1] if whole else TRUTH.get(text, text)


def word_of(value: Any) -> str:
    """Returns the text of a value of Python, NumPy or JSON that is no text itself.

    >>> [word_of(value) for value in (2, 2.0, 2.5, True, 1e300)]
    ['2', '2', '2.5', 'True', '1e+300']
    """
    if isinstance(value, float) and abs(value) < _EXACT and value.is_integer():
        return f"{value:.0f}"
    return canonical(str(value))
