"""Takes requests from the queue, carries them out on Kubernetes, and answers them by events."""

import asyncio
from contextlib import aclosing

from lockstep.base.errors import Reject, Retry
from lockstep.base.text import one_line
from lockstep.bus.dead import REPLAYED
from lockstep.bus.envelope import Unknown, traceparent_of, unpack_event
from lockstep.bus.ordered import CaughtUp, OrderedReader, Received
from lockstep.bus.queue import HANDLE_WITHIN_S, Delivered, Queue
from lockstep.contracts.events import Event, HoldOverridden, RequestAccepted, RequestDone, RequestRefused
from lockstep.contracts.facts import SITE, Desired
from lockstep.contracts.requests import AnyRequest, CancelDrainRequest, HoldRequest, ReleaseRequest
from lockstep.contracts.subjects import EVENTS, REQUESTS, ROOT, tag_of
from lockstep.drain.decide_request import (
    Address,
    End,
    Ending,
    Fault,
    Place,
    Seen,
    address_of,
    decide_request,
    not_allowed,
    read,
)
from lockstep.drain.ledger import Ledger, done, has_ended, next_answers
from lockstep.drain.status import status_of
from lockstep.fleet.holds import hold_id, selects
from lockstep.fleet.pairing import pair
from lockstep.kube import keys
from lockstep.kube.errors import AlreadyExists, Invalid
from lockstep.kube.wire import Hold
from lockstep.runtime.ports import Ports
from lockstep.runtime.site import site_of
from lockstep.runtime.tracing import Step, current_traceparent, step

READER = "drain"
"""The name of the consumer, and of its dead letters."""
ONE_AT_A_TIME = 1
"""A release that follows its hold finds it; and whoever waits for a turn does not use up the time for a try."""
TRY_S = HANDLE_WITHIN_S - 2.0
"""For one try, so that there is time to say that the last one failed."""
FOLLOW_S = 1.0
"""Between two looks at how far the requests are: progress is told once a second at most."""
LASTING = (RequestAccepted, RequestRefused, RequestDone)
"""The answers from which the ledger is made anew at the start."""


class Requests:
    """The requests of one term of leadership."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self._table = ports.mirror.table
        self._site = site_of(ports.settings)
        self._ledger = Ledger()

    async def run(self) -> None:
        """All of it, until cancelled."""
        await self._recall()
        queue = Queue(self._ports.connection, REQUESTS.name, READER, REQUESTS.subjects, width=ONE_AT_A_TIME)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(queue.run(self._take))
            tasks.create_task(self._follow())

    async def _recall(self) -> None:
        """What was answered before, so that the same id is the same request also after a restart."""
        filters = [f"{ROOT}.event.{tag_of(kind)}.>" for kind in LASTING]
        async with aclosing(OrderedReader(self._ports.connection, EVENTS.name, filters).items()) as items:  # type: ignore[type-var]
            async for item in items:
                if isinstance(item, CaughtUp):
                    break
                if isinstance(item, Received) and not isinstance(event := unpack_event(item.body), Unknown):
                    self._ledger.note(event)

    async def _take(self, message: Delivered) -> None:
        """One try at one message."""
        address = address_of(message.subject)
        if address is None:
            raise Reject("subject: want lockstep.request.<verb>.v1.<user>.<cluster>.<id>, as request_subject makes it")
        about = {"lockstep.request": address.id, "lockstep.verb": address.verb, "lockstep.user": address.user}
        with step(lambda: Step("request", traceparent_of(message.headers), (), about, message.subject)):
            try:
                async with asyncio.timeout(TRY_S):
                    await self._handle(address, message)
            except Reject as e:
                if not self._ports.may_act():
                    raise Retry(str(e)) from e
                raise
            except Exception as e:
                if message.is_last and self._ports.may_act():
                    why = one_line(f"{type(e).__name__}: {e}", limit=200)
                    fault = f"was tried {message.attempt} times and set aside among the dead letters: {why}"
                    await self._refuse(address, Fault("failed", fault))
                raise

    async def _handle(self, address: Address, message: Delivered) -> None:
        if not self._ports.may_act():
            raise Retry("the lease may have run out")
        told = self._ledger.told(address)
        is_anew = REPLAYED in message.headers and told.refused is not None
        if told.answers and not is_anew and (told.is_final or address.verb == "hold"):
            await self._say(*told.answers)
            return
        request = read(address, message.body)
        if isinstance(request, Fault):
            await self._refuse(address, request)
            if request.is_dead:
                raise Reject(request.fault)
            return
        await self._carry_out(address, request)

    async def _carry_out(self, address: Address, request: AnyRequest) -> None:
        """Judges a request and does it; right also when the process dies after any of its steps."""
        settings, now = self._ports.settings, self._ports.clock.now()
        if fault := not_allowed(address, settings):
            await self._refuse(address, fault)
            return
        holds = await self._holds(address, request)
        if isinstance(request, HoldRequest) and holds:
            await self._found(address, holds[0])
            return
        verdict = decide_request(address, request, self._seen(address, holds), settings, now)
        match verdict:
            case Fault(code="not-found") if self._ledger.told(address).accepted:  # ended before the process died
                await self._say(done(address, "cancelled" if address.verb == "cancel-drain" else "released", now))
            case Fault():
                await self._refuse(address, verdict)
            case Place():
                await self._place(address, verdict)
            case End():
                await self._end(address, verdict)

    async def _holds(self, address: Address, request: AnyRequest) -> list[Hold]:
        """The Holds that a request is about, as Kubernetes has them now."""
        kube, namespace = self._ports.kube, self._ports.settings.cluster(address.cluster).namespace
        match request:
            case CancelDrainRequest():
                return await kube.list_holds(namespace=namespace)
            case ReleaseRequest():
                hold = await kube.get_hold(namespace, request.hold)
            case HoldRequest():
                hold = await kube.get_hold(namespace, request.name or address.hold_name)
        return [hold] if hold else []

    def _seen(self, address: Address, holds: list[Hold]) -> Seen:
        health = [self._table.sources.get(key) for key in (("kube", SITE), ("slurm.node", address.cluster))]
        if not all(one and one.complete_as_of for one in health):
            raise Retry("Kubernetes and Slurm were not read yet")
        workers = [pair(self._table, key, self._site) for key in sorted(self._table.workers(address.cluster))]
        in_work = len(self._ledger.open())
        return Seen(workers=workers, holds=holds, in_work=in_work)

    async def _found(self, address: Address, hold: Hold) -> None:
        """There is a Hold of that name: this request's own, made before a crash, or another."""
        meta = hold.metadata
        if address.is_of(hold):
            workers = self._seen(address, [hold]).workers
            count = sum(hold.spec is not None and selects(hold.spec.workers, worker) for worker in workers)
            await self._accept(address, hold=f"{meta.namespace}/{meta.name}", workers=count)
            return
        fault = f"name: {meta.name!r}: there is a Hold of that name in namespace {meta.namespace}, not of this request"
        await self._refuse(address, Fault("invalid", fault))

    async def _place(self, address: Address, wanted: Place) -> None:
        try:
            traced = {keys.TRACEPARENT: traceparent} if (traceparent := current_traceparent()) else {}
            await self._ports.kube.create_hold(
                wanted.namespace, wanted.name, wanted.spec, annotations={**address.annotations, **traced}
            )
        except Invalid as e:
            await self._refuse(address, Fault("invalid", one_line(f"Kubernetes refuses it: {e}", limit=400)))
        except AlreadyExists as e:
            raise Retry("a Hold of that name was made in this moment", after_s=0.1) from e
        else:
            self._ports.log.info("Hold placed by request", user=address.user, hold=wanted.name, request=address.id)
            await self._accept(address, hold=f"{wanted.namespace}/{wanted.name}", workers=wanted.workers)

    async def _end(self, address: Address, wanted: End) -> None:
        first = wanted.holds[0]
        if self._ledger.told(address).accepted is None:
            await self._accept(address, hold=f"{first.namespace}/{first.name}", workers=wanted.workers)
        for hold in wanted.holds:
            await self._ports.bus.events(self._overridden(address, hold, wanted))
            await self._ports.kube.delete_hold(hold.namespace, hold.name, uid=hold.uid)
            self._ports.log.info("Hold ended by request", user=address.user, hold=hold.name, request=address.id)
        await self._say(done(address, wanted.outcome, self._ports.clock.now(), selected=wanted.workers))

    def _overridden(self, address: Address, hold: Ending, wanted: End) -> list[Event]:
        """Told before the Hold is ended, so that none is ended without a record."""
        return [
            HoldOverridden(
                id=f"{address.mark}:overridden:{worker}",
                at=self._ports.clock.now(),
                cause_id=address.id,
                worker=worker,
                hold=hold.view,
                by=wanted.by,
                why=wanted.why,
            )
            for worker in hold.overridden
        ]

    async def _accept(self, address: Address, *, hold: str, workers: int) -> None:
        await self._say(
            RequestAccepted(
                id=f"{address.mark}:accepted",
                at=self._ports.clock.now(),
                cause_id=address.id,
                cluster=address.cluster,
                request=address.id,
                verb=address.verb,
                by=address.user,
                workers=workers,
                hold=hold,
            )
        )

    async def _refuse(self, address: Address, fault: Fault) -> None:
        self._ports.log.info("Request refused", user=address.user, request=address.id, error=fault.fault)
        await self._say(
            RequestRefused(
                id=f"{address.mark}:refused",
                at=self._ports.clock.now(),
                cause_id=address.id,
                cluster=address.cluster,
                request=address.id,
                verb=address.verb,
                by=address.user,
                fault=fault.fault,
                code=fault.code,
            )
        )

    async def _say(self, *events: Event) -> None:
        await self._ports.bus.events(events)
        for event in events:
            self._ledger.note(event)

    async def _follow(self) -> None:
        """Tells how far the open requests are."""
        while True:
            await asyncio.sleep(FOLLOW_S)
            try:
                await self._progress()
            except Retry as e:
                self._ports.log.debug("Progress not told", error=str(e))

    async def _progress(self) -> None:
        opened = self._ledger.open()
        if not opened or not self._ports.mirror.ready.is_set():
            return
        now = self._ports.clock.now()
        on: dict[str, list[Desired]] = {}
        for desired in self._table.desired.values():
            for view in desired.holds:
                on.setdefault(view.id, []).append(desired)
        health = self._table.sources.get(("kube", SITE))
        for address, told in opened.items():
            name = told.accepted.hold if told.accepted else ""
            hold = self._table.holds[address.cluster].get(name)
            if hold is not None and (hold.request, hold.requested_by) != (address.id, address.user):
                hold = None
            status = status_of(hold, on.get(hold_id(hold), []), refused=False, now=now) if hold else None
            ended = has_ended(told, hold, health.complete_as_of if health else None)
            if answers := list(next_answers(address, told, status, now, ended=ended)):
                await self._say(*answers)
