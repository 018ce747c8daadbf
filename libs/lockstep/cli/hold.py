"""`lockstep hold`: takes workers out of service by creating a Hold, or by a request for one."""

from argparse import Namespace

import msgspec

from lockstep.base.clock import now
from lockstep.base.errors import BadInput
from lockstep.cli import choose
from lockstep.cli.connect import Reach
from lockstep.cli.exits import Exit, Stop
from lockstep.cli.order import Order, faults, order_of
from lockstep.cli.output import Out, document
from lockstep.cli.sources import read_fleet
from lockstep.cli.through import faults_of_way, goes_by_nats, nats_user, request, request_id
from lockstep.cli.wait import wait_for
from lockstep.contracts.hold import GROUP, VERSION
from lockstep.contracts.requests import HoldRequest
from lockstep.kube.errors import AlreadyExists, NotFound
from lockstep.kube.port import KubeApi
from lockstep.kube.wire import Hold

TRIES = 9
"""Names that are tried when the first is taken: `gpu-7-dimm-2` and so on."""


async def run(args: Namespace) -> int:
    """Checks everything against the fleet, then creates the Hold or asks for it."""
    if wrong := [*faults(args, now()), *faults_of_way(args)]:
        raise BadInput(wrong)
    out = Out(form=args.output)
    async with Reach.of(args) as reach:
        fleet = await read_fleet(reach, out)
        order = order_of(args, fleet, choose.clusters(fleet, args.cluster))
        if args.dry_run:
            out.note(f"Would hold {_count(order)}: {', '.join(order.selected)}")
            out.raw(document(manifest(order), "yaml"))
            return Exit.OK
        if await goes_by_nats(args, reach):
            name = order.name if order.named else ""
            what = HoldRequest(id=request_id(args), cluster=order.spec.cluster, spec=order.spec, name=name)
            return await request(reach, what, nats_user(args, reach), out, to_the_end=args.wait)
        kube = await reach.kube()
        hold = await create(kube, order)
        meta = hold.metadata
        name = f"{meta.namespace}/{meta.name}"
        about = {"hold": name, "cluster": order.spec.cluster, "workers": order.selected}
        out.tell(f"hold/{name} holds {_count(order)}", about)
        return await wait_for(kube, hold, out) if args.wait else Exit.OK


def manifest(order: Order) -> dict[str, object]:
    """The Hold as a manifest for `kubectl create -f`."""
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "Hold",
        "metadata": {"name": order.name, "namespace": order.namespace},
        "spec": msgspec.to_builtins(order.spec),
    }


async def create(kube: KubeApi, order: Order) -> Hold:
    """Creates the Hold; a name that was only proposed gets a number when it is taken.

    Raises:
        BadInput: the name that was asked for is taken.
        Stop: Holds are not installed there.
    """
    for number in range(1, TRIES + 1):
        name = order.name if number == 1 else f"{order.name}-{number}"
        try:
            return await kube.create_hold(order.namespace, name, order.spec)
        except AlreadyExists as e:
            if order.named or number == TRIES:
                raise BadInput([f"--name {name!r}: there is a Hold of that name in namespace {order.namespace}"]) from e
        except NotFound as e:
            raise Stop(Exit.NOT_FOUND, f"namespace {order.namespace} or the Hold resource is not there: {e}") from e
    raise AssertionError("the last try returns or raises")


def _count(order: Order) -> str:
    number = len(order.selected)
    return f"{number} worker{'s' if number != 1 else ''} of cluster {order.spec.cluster}"
