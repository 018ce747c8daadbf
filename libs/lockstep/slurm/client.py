"""slurmrestd's client: the port to one Slurm cluster over HTTP."""

import asyncio
from collections.abc import Collection, Iterator, Mapping
from typing import TypeVar

import msgspec
import structlog

from lockstep.base.backoff import backoff
from lockstep.base.text import one_line
from lockstep.contracts.facts import SlurmJob, SlurmNode, SlurmReservation
from lockstep.slurm import answers, convert, hostlist, reasons, states, versions, wire
from lockstep.slurm.errors import Busy, Denied, NoSuchNode, Refused, SlurmError, Unreachable, Unsupported
from lockstep.slurm.port import JobList, NodeList, Outcome, Ping
from lockstep.slurm.transport import Transport
from lockstep.slurm.versions import Versions

R = TypeVar("R", bound=wire.Reply)

_TRIES = 3
_SINGLY = 4
_STAMP_TRIES = 2
_EVERYBODY = frozenset({"all"})
_NO_JOB_CHANGES = "no job changes"

log = structlog.get_logger(__name__)


class Write(msgspec.Struct, omit_defaults=True):
    """Body of `POST nodes/`."""

    name: list[str]
    state: list[str]
    reason: str = ""


class SlurmRest:
    """A `SlurmApi` over slurmrestd."""

    def __init__(self, transport: Transport, *, cluster: str) -> None:
        """`cluster` is the name in our settings that all facts carry; the transport is closed with the client."""
        self._transport = transport
        self._cluster = cluster
        self._versions = Versions(self._speaks)
        self._stamp_trouble = 0

    async def nodes(self, *, since: int = 0) -> NodeList | None:
        """All nodes, or None when none has changed after `since`.

        No `flags` are sent: naming one drops MIXED. Slurm before 26.05.3 answers `update_time` with 500 when a node has
        changed: it is then asked for everything, and after two of those in a row always.
        """
        if since and self._stamp_trouble < _STAMP_TRIES:
            try:
                reply = await self._ask("GET", "nodes/", wire.Nodes, query={"update_time": str(since)})
            except Unreachable as error:
                if error.status != 500:
                    raise
                self._stamp_trouble += 1
                if self._stamp_trouble == _STAMP_TRIES:
                    log.info("Slurm cannot say whether nodes changed, full lists from now on")
            else:
                self._stamp_trouble = 0
                return self._node_list(reply)
        return self._node_list(await self._ask("GET", "nodes/", wire.Nodes))

    async def node(self, name: str) -> SlurmNode:
        """One node; its allocations and MIXED may be old (see the port)."""
        try:
            reply = await self._ask("GET", "node/{name}", wire.Nodes, name=name)
        except Refused as error:
            if error.numbers <= answers.NO_NODE_READ:
                raise NoSuchNode(name) from error
            raise
        if reply is None or reply.nodes is None:
            raise Unreachable("GET node/{name}: the answer has no nodes in it")
        found = [row for row in reply.nodes if row.name == name]
        if not found:
            raise NoSuchNode(name)
        return convert.node(self._cluster, found[0])

    async def jobs(self, *, since: int = 0) -> JobList | None:
        """All jobs, or None when none has changed after `since`.

        `flags=ALL` leaves out what each job has on each core, which is four fifths of the answer.
        """
        query = {"flags": "ALL"} | ({"update_time": str(since)} if since else {})
        reply = await self._ask("GET", "jobs/", wire.Jobs, query=query)
        if reply is None:
            return None
        if reply.jobs is None:
            raise Unreachable("GET jobs/: the answer has no jobs in it")
        stamp = wire.number(reply.last_update) or 0
        warned = " ".join(warning.description or "" for warning in reply.warnings or [])
        if since and not reply.jobs and (not stamp or _NO_JOB_CHANGES in warned.lower()):
            return None
        held: list[SlurmJob] = []
        rest: dict[int, wire.Job] = {}
        for row in reply.jobs:
            if states.job_holds_nodes(convert.job_states(row)):
                held.append(convert.job(self._cluster, row))
            else:
                rest[row.job_id] = row
        return JobList(jobs=held, others=_Jobs(self._cluster, rest), last_update=stamp)

    async def reservations(self) -> list[SlurmReservation]:
        """All reservations."""
        reply = await self._ask("GET", "reservations/", wire.Reservations)
        if reply is None or reply.reservations is None:
            raise Unreachable("GET reservations/: the answer has no reservations in it")
        return [convert.reservation(self._cluster, row) for row in reply.reservations]

    async def partitions(self) -> dict[str, list[str]]:
        """The nodes of each partition."""
        reply = await self._ask("GET", "partitions/", wire.Partitions)
        if reply is None or reply.partitions is None:
            raise Unreachable("GET partitions/: the answer has no partitions in it")
        return {row.name: convert.names(row.nodes.configured) if row.nodes else [] for row in reply.partitions}

    async def drain(self, names: Collection[str], reason: str) -> Outcome:
        """Set DRAIN with `reason`, one line of at most 256 characters."""
        if not reason or one_line(reason, limit=reasons.MAX) != reason:
            raise ValueError(f"not a clean reason of 1 to {reasons.MAX} characters: {one_line(reason, limit=64)!r}")
        return await self._write(names, states.DRAIN, reason)

    async def undrain(self, names: Collection[str]) -> Outcome:
        """Lift DRAIN."""
        return await self._write(names, states.UNDRAIN, "")

    async def requeue(self, job_id: int) -> None:
        """Put the job back in the queue; `Refused` by a Slurm whose REST cannot (before 26.05)."""
        version = await self._versions.current()
        if version not in versions.HAS_REQUEUE:
            raise Refused([f"data parser {version} cannot requeue over REST"])
        body = msgspec.json.encode({"jobs": [str(job_id)]})
        _job_done(await self._ask("POST", "jobs/requeue", wire.JobActs, body=body))

    async def cancel(self, job_id: int) -> None:
        """Cancel the job."""
        _job_done(await self._ask("DELETE", "job/{name}", wire.JobActs, name=str(job_id)))

    async def ping(self) -> Ping:
        """Who answers, and which parser is spoken."""
        version = await self._versions.current()
        reply = await self._ask("GET", "ping/", wire.Pings)
        release = reply.meta.slurm if reply and reply.meta else None
        return Ping(
            version=(release.release if release else None) or "",
            parser=version,
            cluster=(release.cluster if release else None) or "",
            controllers_up=sum(row.responding for row in (reply.pings if reply else None) or []),
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._transport.close()

    def _node_list(self, reply: wire.Nodes | None) -> NodeList | None:
        if reply is None:
            return None
        if reply.nodes is None:
            raise Unreachable("GET nodes/: the answer has no nodes in it")
        nodes = [convert.node(self._cluster, row) for row in reply.nodes]
        return NodeList(nodes=nodes, last_update=wire.number(reply.last_update) or 0)

    async def _write(self, names: Collection[str], state: str, reason: str) -> Outcome:
        """One POST for all. A refusal says not whom it means and has changed the others: then each is looked at."""
        wanted = list(dict.fromkeys(names))
        if any(name.lower() in _EVERYBODY for name in wanted):
            raise ValueError("Slurm takes the name 'all' for every node")
        if not wanted:
            return Outcome()
        refusal = await self._post(wanted, state, reason)
        if refusal is None:
            return Outcome(done=wanted)
        if len(wanted) == 1:
            return Outcome(failed={wanted[0]: refusal})
        return await self._settle(wanted, state, reason)

    async def _settle(self, wanted: list[str], state: str, reason: str) -> Outcome:
        """Sorts the names of a refused bulk by what Slurm shows; those not done are tried once by themselves."""
        seen = {node.name: node for node in (await self._all_nodes()).nodes}
        done = [name for name in wanted if name in seen and _is_so(seen[name], state, reason)]
        failed: dict[str, SlurmError] = {name: NoSuchNode(name) for name in wanted if name not in seen}
        rest = [name for name in wanted if name in seen and name not in set(done)]
        gate = asyncio.Semaphore(_SINGLY)

        async def once(name: str) -> None:
            async with gate:
                error: SlurmError | None
                try:
                    error = await self._post([name], state, reason)
                except (Unreachable, Busy, Denied, Unsupported) as trouble:
                    error = trouble
            if error is None:
                done.append(name)
            else:
                failed[name] = error

        async with asyncio.TaskGroup() as group:
            for name in rest:
                group.create_task(once(name))
        return Outcome(done=done, failed=failed)

    async def _all_nodes(self) -> NodeList:
        found = await self.nodes()
        if found is None:
            raise Unreachable("GET nodes/: unchanged, though nothing was said of when")
        return found

    async def _post(self, names: list[str], state: str, reason: str) -> NoSuchNode | Refused | None:
        body = msgspec.json.encode(Write(name=[hostlist.compress(names)], state=[state], reason=reason))
        try:
            await self._ask("POST", "nodes/", wire.Reply, body=body)
        except Refused as error:
            return NoSuchNode(names[0]) if error.numbers == answers.UNKNOWN_NODE and len(names) == 1 else error
        return None

    async def _ask(
        self,
        method: str,
        route: str,
        kind: type[R],
        *,
        name: str = "",
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> R | None:
        """One question, in the parser that is spoken; None when nothing has changed.

        Said again only where Slurm cannot have acted: an address or plugin it does not know (it is asked which parsers
        it has), and a token that has been exchanged meanwhile.
        """
        for attempt in range(_TRIES):
            version = await self._versions.current()
            who = self._transport.who()
            try:
                answer = await self._transport.send(method, version, route, who, name=name, query=query, body=body)
                return answers.check(answer, kind)
            except Denied as error:
                if attempt or who == self._transport.who():
                    raise self._denied(error) from error
            except Unreachable as error:
                if not error.status:
                    self._versions.doubt(version)
                raise
            except Unsupported:
                self._versions.doubt(version)
                await asyncio.sleep(backoff(attempt, first_s=0.1))
        raise Unsupported(f"slurmrestd has {version} and does not know {method} {route}")

    async def _speaks(self, version: str) -> bool:
        answer = await self._transport.send("GET", version, "ping/", self._transport.who())
        try:
            answers.check(answer, wire.Pings)
        except Unsupported:
            return False
        except Denied as error:
            raise self._denied(error) from error
        return True

    def _denied(self, error: Denied) -> Denied:
        """The same, saying what must be mended."""
        return Denied(f"{error}; see that {self._transport.whence} is right", after_s=error.after_s)


class _Jobs(Mapping[int, SlurmJob]):
    """Jobs by number, each made from its row when somebody looks at it: there may be a hundred thousand."""

    def __init__(self, cluster: str, rows: Mapping[int, wire.Job]) -> None:
        self._cluster = cluster
        self._rows = rows

    def __getitem__(self, job_id: int) -> SlurmJob:
        return convert.job(self._cluster, self._rows[job_id])

    def __iter__(self) -> Iterator[int]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)


def _is_so(node: SlurmNode, state: str, reason: str) -> bool:
    drained = states.is_drain(node.base, node.flags)
    return drained and node.reason == reason if state == states.DRAIN else not drained


def _job_done(reply: wire.JobActs | None) -> None:
    """Raises what `status` says: ending an unknown or ended job is answered with 200 and no `errors`."""
    for row in (reply.status if reply else None) or []:
        if row.error and (code := wire.number(row.error.code)):
            raise answers.fault(422, [wire.Fault(error=row.error.string, error_number=code)])
