"""The forwarder: one task for each endpoint, none of which waits for another."""

import asyncio

from lockstep.base.errors import BadInput
from lockstep.contracts.facts import ForwardPosition
from lockstep.forward.handlers import Forwarder, reader_of
from lockstep.runtime import service
from lockstep.runtime.ports import Ports
from lockstep.runtime.service import Service


async def run(ports: Ports) -> None:
    """Post until cancelled."""
    if not ports.settings.forward:
        raise BadInput(["forward: no endpoint is set"])
    known = {fact.endpoint: fact for fact in ports.mirror.table.of_kind(ForwardPosition)}
    async with asyncio.TaskGroup() as tasks:
        for endpoint in ports.settings.forward:
            forwarder = Forwarder(endpoint, ports, known.get(endpoint.name))
            tasks.create_task(_forward(forwarder, endpoint.name, ports))


async def _forward(forwarder: Forwarder, name: str, ports: Ports) -> None:
    try:
        await forwarder.run()
    finally:
        ports.health.end(reader_of(name))


SERVICE = Service(name="forward", family="forward", run=run)


def main() -> int:
    """`lockstep-forward`; returns the exit code."""
    return service.main(SERVICE)
