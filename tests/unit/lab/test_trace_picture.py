"""The picture of a trace."""

from typing import Any
from xml.etree import ElementTree as ET

from tests.e2e.trace_picture import in_order, picture
from tests.lab.jaeger import Span


def a_span(ident: str, parent: str, start_ms: float, **fields: Any) -> Span:
    """A span of the drain service that takes a millisecond."""
    known: dict[str, Any] = {"trace": "t", "links": (), "service": "lockstep-drain", "name": ident, "tags": {}}
    return Span(**(known | fields), id=ident, parent=parent, start=1_000 + start_ms / 1_000, seconds=0.001)


def test_each_span_is_below_what_it_continues_and_the_earlier_first() -> None:
    """One whose parent is not known stands by itself."""
    spans = [a_span("c", "a", 9), a_span("b", "a", 3), a_span("a", "", 0), a_span("d", "b", 12), a_span("e", "lost", 1)]
    assert [(span.id, depth) for span, depth in in_order(spans)] == [("a", 0), ("b", 1), ("d", 2), ("c", 1), ("e", 0)]


def test_the_picture_is_a_whole_file_with_a_row_for_each_span() -> None:
    """Names are text, whatever is in them; a decision says what it came to."""
    decided = a_span("decide", "a", 40, tags={"lockstep.progress": "drained"})
    drawn = picture([a_span("a", "", 0, name="<&>"), decided])
    texts = [element.text for element in ET.fromstring(drawn).iter("{http://www.w3.org/2000/svg}text")]
    assert {"<&>", "decide: drained", "1.0 ms", "100 ms"} <= set(texts)
