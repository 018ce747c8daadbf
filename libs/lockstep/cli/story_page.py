"""A story as one page of HTML that needs nothing else: no script, no font, no picture from elsewhere. Pure.

Text from outside stands in the page as text only: on one line, escaped, and kept from turning its neighbours around.
"""

from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from hashlib import sha256
from html import escape
from importlib.resources import files
from typing import Any

import msgspec

from lockstep.base.text import one_line
from lockstep.bus.envelope import Unknown
from lockstep.cli.moments import lasting
from lockstep.cli.story_chart import rows_of, svg
from lockstep.cli.story_text import BAD, MAX_STEPS
from lockstep.cli.telling import Line, gap_words

MAX_LINES = 5000
"""Events of one page; the newest are kept."""
MAX_VALUE = 2000
MAX_FIELDS = 200

STYLE = files("lockstep.cli").joinpath("story.css").read_text(encoding="utf-8")


class Heading(msgspec.Struct, frozen=True, kw_only=True):
    """What stands above the story."""

    worker: str
    since: datetime | None
    """Where it was asked to begin; None: with the first event."""
    until: datetime
    summary: str
    left_out: int = 0
    """So many older events had no room."""


def page(heading: Heading, lines: Sequence[Line], link: Callable[[str], str]) -> str:
    """The whole document. `link` makes a trace's address from its traceparent."""
    first = min((line.at for line in lines), default=heading.until)
    since = first if heading.left_out or heading.since is None else heading.since
    title = escape(one_line(f"The story of {heading.worker}", limit=200))
    digest = b64encode(sha256(STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    told = sorted((each for line in lines for each in line.all), key=lambda each: (each.at, each.sequence))
    chart = svg(rows_of((each.event for each in told), since), since, heading.until)
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="referrer" content="no-referrer"><meta name="viewport" content="width=device-width">',
            f"<title>{title}</title><style>{STYLE}</style></head><body>",
            f"<h1>{title}</h1>",
            f"<p>{_span(since, heading.until)}, in UTC. Open an event to see all that it says.</p>",
            f"<p>{len(told)} events. {escape(heading.summary)}</p>",
            f"<p>{heading.left_out} older events are left out; see --since.</p>" if heading.left_out else "",
            f"<figure>{chart}</figure>" if lines else "<p>Nothing happened.</p>",
            *_list(lines, link),
            "</body></html>\n",
        ]
    )


def _span(since: datetime, until: datetime) -> str:
    return f"{since:%Y-%m-%d %H:%M:%S} to {until:%Y-%m-%d %H:%M:%S} ({lasting((until - since).total_seconds())})"


def _list(lines: Sequence[Line], link: Callable[[str], str]) -> Iterator[str]:
    day = None
    for line in lines:
        if line.at.date() != day:
            day = line.at.date()
            yield f"<h2>{line.at:%A, %Y-%m-%d}</h2>"
        if gap := gap_words(line):
            yield f'<p class="gap">{gap}</p>'
        noun, _, rest = line.type.partition(".")
        bad = " bad" if f"{noun}.{rest.partition('.')[0]}" in BAD else ""
        noun = noun if noun.replace("-", "").isalnum() and noun.isascii() else "unknown"
        because = f' <span class="why">because of {_text(line.because)}</span>' if line.because else ""
        yield (
            f'<details class="d{min(line.depth, MAX_STEPS)} {escape(noun)}{bad}"><summary>'
            f'<time datetime="{line.at.isoformat()}">{line.at:%H:%M:%S}</time><span>{_text(line.text)}{because}</span>'
            f"</summary>{''.join(_fields(each, link) for each in line.all)}</details>"
        )


def _fields(line: Line, link: Callable[[str], str]) -> str:
    event = line.event
    plain = {"type": event.type, "unreadable": event.why} if isinstance(event, Unknown) else msgspec.to_builtins(event)
    rows = [f"<dt>{_text(name)}</dt><dd>{_text(value)}</dd>" for name, value in list(_flat("", plain))[:MAX_FIELDS]]
    url = link(line.traceparent) if line.traceparent else ""
    if url.startswith(("http://", "https://")):
        rows.append(f'<dt>trace</dt><dd><a rel="noreferrer" href="{escape(url)}">{escape(url)}</a></dd>')
    return f"<dl>{''.join(rows)}</dl>"


def _flat(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """The fields of an event, inner ones as `hold.owner`; several values are joined."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _flat(f"{name}.{key}" if name else str(key), inner)
    elif isinstance(value, list) and any(isinstance(each, dict) for each in value):
        for index, each in enumerate(value):
            yield from _flat(f"{name}.{index}", each)
    else:
        yield name, ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _text(text: str) -> str:
    return f"<bdi>{escape(one_line(text, limit=MAX_VALUE))}</bdi>"
