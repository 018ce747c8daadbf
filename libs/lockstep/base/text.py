"""Text from outside, made fit to be shown: one line, bounded, without control characters."""

import unicodedata

_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def one_line(text: str, *, limit: int) -> str:
    """`text` on one line, without control or invisible characters, at most `limit` characters.

    Doing it twice changes nothing. A cut ends in "…".
    """
    if not (text.isascii() and text.isprintable()):  # nearly all texts are, and then nothing is to be replaced
        text = "".join(" " if c in "\t\r\n\v\f\x85\u2028\u2029" else c for c in text)
        text = "".join(c for c in text if unicodedata.category(c) not in _HIDDEN)
    shown = " ".join(text.split())
    return shown if len(shown) <= limit else shown[: limit - 1].rstrip() + "…"
