"""Text from outside, made fit to be shown: one line, bounded, without control characters."""

import unicodedata

_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def one_line(text: str, *, limit: int) -> str:
    """`text` on one line, without control or invisible characters, at most `limit` characters.

    Doing it twice changes nothing. A cut ends in "…".
    """
    shown = "".join(" " if c in "\t\r\n\v\f\x85\u2028\u2029" else c for c in text)
    shown = "".join(c for c in shown if unicodedata.category(c) not in _HIDDEN)
    shown = " ".join(shown.split())
    return shown if len(shown) <= limit else shown[: limit - 1].rstrip() + "…"
