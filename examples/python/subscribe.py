"""Prints each worker that is drained, and is the place to do something about it: subscribe.py [NAME]."""

import asyncio
import json
import os
import sys
from pathlib import Path

import nats


async def main(name: str) -> None:
    """Reads from where `name` was, for ever. Events of the last two minutes may come twice."""
    client = await nats.connect(os.environ.get("NATS_URL", "nats://127.0.0.1:4222"), **login())
    events = await client.jetstream().subscribe(
        "lockstep.event.drain.drained.v1.>", stream="LOCKSTEP_EVENTS", durable=name, manual_ack=True
    )
    async for message in events.messages:
        worker = json.loads(message.data)["worker"]
        print(f"{worker['cluster']}/{worker['name']} on {worker.get('kube_node', '?')} is drained", flush=True)
        await message.ack()  # from now on it is not told again; what fails before that is


def login() -> dict[str, str]:
    """Who we are on NATS."""
    if creds := os.environ.get("NATS_CREDS"):
        return {"user_credentials": creds}
    if user := os.environ.get("NATS_USER"):
        return {"user": user, "password": Path(os.environ["NATS_PASSWORD_FILE"]).read_text().strip()}
    return {}


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "printer"))
