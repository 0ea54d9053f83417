"""Defines one spelling for each category, key and class, however it was sent.

For example, pandas reads whole numbers as floats if their column has blanks, and reads `TRUE` as a truth value. So 2,
2.0, "2" and "2.0" must mean the same category. Files, requests, rows from Python and lists in a schema become text by
the same rules: a whole number has no `.0`, and a truth value is `True` or `False`.
"""

from __future__ import annotations

import re
from typing import Any

WHOLE = r"([+-]?[0-9]+)\.0*"  # valid in RE2 as well, the syntax of Arrow and TensorFlow
TRUTH = {"true": "True", "TRUE": "True", "false": "False", "FALSE": "False"}

_WHOLE = re.compile(WHOLE)
_EXACT = 2.0**53  # from here on, a float cannot hold every whole number


def canonical(text: str) -> str:
    """Returns the canonical spelling of a category, key or class that is text.

    >>> [canonical(text) for text in ("2.0", "-7.", "2.50", "TRUE", "true or false")]
    ['2', '-7', '2.50', 'True', 'true or false']
    """
    whole = _WHOLE.fullmatch(text)
    return whole[1] if whole else TRUTH.get(text, text)


def word_of(value: Any) -> str:
    """Returns the canonical spelling of a category, key or class that is a number or a truth value.

    The value may come from Python, NumPy or JSON.

    >>> [word_of(value) for value in (2, 2.0, 2.5, True, 1e300)]
    ['2', '2', '2.5', 'True', '1e+300']
    """
    if isinstance(value, float) and abs(value) < _EXACT and value.is_integer():
        return f"{value:.0f}"
    return canonical(str(value))
