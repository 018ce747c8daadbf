"""What is on the wire is what `proto/` says: every message that real services have sent."""

import asyncio
import json
from typing import NamedTuple

import msgspec
import nats
from jsonschema import Draft202012Validator
from nats.js.api import ConsumerConfig, DeliverPolicy

from lockstep.contracts.asyncapi.messages import EVENT, FACT, messages
from tests.e2e.site import Site, eventually
from tests.lab import paths

ABOUT = {about.name: about for about in messages()}
CAUSED = {"hold.placed.v1", "hold.released.v1", "drain.started.v1", "drain.drained.v1", "drain.ended.v1"}
"""Events that this test brings about."""


class Sent(NamedTuple):
    """A message as it is in its stream."""

    subject: str
    headers: dict[str, str]
    body: bytes


async def _stored(url: str, *streams: str) -> list[Sent]:
    """All that is in the streams now; more comes in meanwhile, so it ends where nothing is left behind."""
    client = await nats.connect(url)
    found = []
    for stream in streams:
        config = ConsumerConfig(deliver_policy=DeliverPolicy.ALL)
        reading = await client.jetstream().subscribe(">", stream=stream, ordered_consumer=True, config=config)
        left = 1
        while left:
            message = await reading.next_msg(timeout=5)
            found.append(Sent(message.subject, dict(message.headers or {}), message.data))
            left = message.metadata.num_pending
    await client.close()
    return found


def _wrong(sent: Sent) -> str:
    """What of a message is not as `proto/` says; empty: nothing."""
    sort, rest = sent.subject.removeprefix("lockstep.").split(".", 1)
    tag = rest.rsplit(".", 2)[0]
    about = ABOUT.get(f"{sort}.{tag}")
    if about is None:
        return f"{sent.subject}: no such message"
    schema = json.loads((paths.CHECKOUT / f"proto/schemas/{about.name}.json").read_text("utf-8"))
    faults = [error.message for error in Draft202012Validator(schema).iter_errors(json.loads(sent.body))]
    try:
        msgspec.convert(sent.headers, about.sort.headers)
    except msgspec.ValidationError as error:
        faults.append(f"{error}; headers are {sorted(sent.headers)}")
    if sent.headers.get("ce-type") != about.tag:
        faults.append(f"ce-type is {sent.headers.get('ce-type')}")
    return f"{sent.subject}: {'; '.join(faults)}" if faults else ""


def test_all_that_was_sent_is_as_it_is_described(site: Site) -> None:
    """Subject, headers and body of each message in both streams, after a drain for a job and its end at the least."""
    job = site.job("gpu-1")
    host = site.cordon("gpu-1")
    eventually("the drain waits", lambda: site.slurm("gpu-1").drained)
    site.cancel(job)
    eventually("drained", lambda: site.events(kind="drain.drained"))
    site.kubectl("uncordon", host)
    eventually("back in service", lambda: not site.slurm("gpu-1").drained)
    eventually("in order", lambda: site.in_order("gpu-1"))

    sent = asyncio.run(_stored(site.lab.nats.url, EVENT.stream.name, FACT.stream.name))

    assert {one.headers["ce-type"] for one in sent} >= CAUSED
    assert len(sent) > 20
    assert [fault for fault in map(_wrong, sent) if fault] == []
