"""All settings, as frozen types with the unit in the name. Read once, at start; see `load`."""

from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from lockstep.contracts.events import EVENT_TYPES
from lockstep.contracts.policy import Policy
from lockstep.contracts.subjects import EVENTS, STREAMS, Stream, tag_of
from lockstep.slurm.hostlist import expand

Name = Annotated[str, Meta(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=40)]
"""Small letters, digits and dashes: fit for a part of a Kubernetes object's name."""
Url = Annotated[str, Meta(pattern=r"^(https?|unix)://[^@\s]+$")]
Port = Annotated[int, Meta(ge=0, le=65535)]
Seconds = Annotated[float, Meta(gt=0, le=3600)]


class Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Common to all settings."""


class WorkerSelectors(Part, frozen=True, kw_only=True):
    """Which pods are workers of a cluster, and what they are called in Slurm."""

    labels: dict[str, str] = {}
    """Labels that a worker's pod carries. Left out: those that slurm-operator gives its pods for this cluster."""
    nodename_label: str = "slinky.slurm.net/slurm-nodename"
    """The pod's label with its Slurm name. A pod without it is called by its hostname, with hostNetwork by its node."""
    hybrid: bool = False
    """Slurm nodes without a pod are workers too, on the Kubernetes node of the same name if there is one."""


class ClusterSettings(Part, frozen=True, kw_only=True):
    """One Slurm cluster."""

    name: Name
    """What the cluster is called here: in subjects, on the command line, in object names."""
    namespace: str
    """The namespace of its worker pods and of its Holds."""
    url: Url
    """slurmrestd's address: http(s)://host:port or unix:///path."""
    user: str = "slurm"
    """The Slurm user that Lockstep is; needs the right to change nodes (SlurmUser or an operator)."""
    key_file: str = ""
    """File with the HS256 key of slurmctld, to mint short tokens from. Either this or token_file."""
    token_file: str = ""
    """File with a token that somebody else renews; read anew at each use."""
    workers: WorkerSelectors = WorkerSelectors()

    def __post_init__(self) -> None:
        """Fills in slurm-operator's labels where none are given."""
        if not self.workers.labels:
            labels = {"app.kubernetes.io/name": "slurmd", "slinky.slurm.net/cluster": self.name}
            msgspec.structs.force_setattr(self, "workers", msgspec.structs.replace(self.workers, labels=labels))

    def faults(self) -> list[str]:
        """What no single field can tell."""
        if bool(self.key_file) == bool(self.token_file):
            return ["want exactly one of key_file and token_file"]
        return []


class PollSettings(Part, frozen=True, kw_only=True):
    """How often slurmctld is asked."""

    min_interval_s: Annotated[float, Meta(ge=0.05, le=60)] = 0.25
    """From one read to the next, at least."""
    max_interval_s: Annotated[float, Meta(ge=0.05, le=300)] = 5.0
    """Between two reads while all is quiet, and for a slow slurmctld."""
    max_share: Annotated[float, Meta(gt=0, le=1)] = 0.25
    """Of the time, how much may be spent on waiting for Slurm: slow answers make reads rarer. Of the wait for a list of
    1,000 nodes slurmctld works a twentieth; slurmrestd, which writes the JSON, works the rest."""

    def faults(self) -> list[str]:
        """What no single field can tell."""
        if self.min_interval_s > self.max_interval_s:
            return [f"min_interval_s {self.min_interval_s:g} is more than max_interval_s {self.max_interval_s:g}"]
        return []


class NatsSettings(Part, frozen=True, kw_only=True):
    """Where the facts and events go."""

    url: Annotated[str, Meta(pattern=r"^((nats|tls|ws|wss)://[^@\s,]+(,\s*(nats|tls|ws|wss)://[^@\s,]+)*)?$")] = ""
    """Addresses with commas between, without a password. Empty: a server of our own (standalone only)."""
    creds_file: str = ""
    """Credentials file with a JWT and a seed."""
    user: str = ""
    password_file: str = ""
    ca_file: str = ""
    """Certificates to trust instead of the system's; a server without TLS is not spoken to then, as with tls://."""
    cert_file: str = ""
    """Certificate to show to a server that asks for one."""
    key_file: str = ""
    """Its private key."""
    replicas: Literal[1, 3] = 1
    """Servers that keep a copy of each stream. Raised on streams in use, never lowered; waits for so many servers."""
    events_max_bytes: Annotated[int, Meta(ge=1 << 20, le=1 << 44)] = EVENTS.max_bytes
    """The events take no more; then the oldest go before their time, which is said from 80 % on."""
    events_max_age_s: Annotated[int, Meta(ge=600, le=10 * 366 * 24 * 3600)] = EVENTS.max_age_s
    """So long events are kept."""

    @property
    def streams(self) -> tuple[Stream, ...]:
        """The streams as they must be here."""
        events = msgspec.structs.replace(EVENTS, max_bytes=self.events_max_bytes, max_age_s=self.events_max_age_s)
        wanted = (events if stream is EVENTS else stream for stream in STREAMS)
        return tuple(msgspec.structs.replace(stream, replicas=self.replicas) for stream in wanted)

    def faults(self) -> list[str]:
        """What no single field can tell."""
        found = []
        if bool(self.user) != bool(self.password_file):
            found.append("user and password_file go together")
        if self.creds_file and self.user:
            found.append("want either creds_file or user, not both")
        if bool(self.cert_file) != bool(self.key_file):
            found.append("cert_file and key_file go together")
        return found


class KubeSettings(Part, frozen=True, kw_only=True):
    """The way to the Kubernetes API server."""

    kubeconfig: str = ""
    """Empty: the pod's service account, or else $KUBECONFIG or ~/.kube/config."""
    context: str = ""
    """Empty: the file's current one."""
    qps: Annotated[float, Meta(gt=0, le=10_000)] = 400.0
    """Requests a second, at most: a thousand pods show a new state within seconds."""
    concurrency: Annotated[int, Meta(ge=1, le=256)] = 48
    """Requests at the same time, at most."""


class HealthSettings(Part, frozen=True, kw_only=True):
    """Where /livez, /readyz and /metrics are served, and where a condition is shown."""

    host: str = "127.0.0.1"
    port: Port = 8080
    """0: any free port."""
    deployment: Annotated[str, Meta(pattern=r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$", max_length=253)] = ""
    """The Deployment, in the namespace of the Leases, whose condition `lockstep.sh/SlurmRead` the slurm-poller keeps.
    Empty: none."""


class TracingSettings(Part, frozen=True, kw_only=True):
    """OpenTelemetry."""

    endpoint: Annotated[str, Meta(pattern=r"^(https?://[^@\s]+)?$")] = ""
    """OTLP over HTTP, such as http://collector:4318. Empty: no traces are sent."""
    sample: Annotated[float, Meta(ge=0, le=1)] = 1.0
    """Share of the flows that are traced."""
    ui: Annotated[str, Meta(pattern=r"^(https?://[^@\s{}]+\{trace_id\}[^@\s{}]*)?$", max_length=500)] = ""
    """Where people look at a trace, such as http://jaeger:16686/trace/{trace_id}; `lockstep why` prints it."""


class LogSettings(Part, frozen=True, kw_only=True):
    """Logs go to standard error."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "json", "human"] = "auto"
    """auto: for people on a terminal, else JSON lines."""


class LeaseSettings(Part, frozen=True, kw_only=True):
    """Which of several replicas acts."""

    enabled: bool = True
    """False: this process believes that it is alone."""
    namespace: str = ""
    """Where the Leases are. Empty: the namespace of the first cluster."""
    duration_s: Annotated[int, Meta(ge=3, le=300)] = 12
    """So long after its last renewal another replica takes over, and up to a fifth of that for having seen it late."""


VERBS = ("hold", "release", "cancel-drain")
"""What may be asked for by a request."""
ALL = "*"


class RequestRight(Part, frozen=True, kw_only=True):
    """What one NATS user may ask for."""

    user: Annotated[str, Meta(min_length=1, max_length=120)]
    """As NATS knows it: it stands in the subject, under which the NATS server lets only this user publish."""
    verbs: Annotated[list[str], Meta(min_length=1)]
    """Of `hold`, `release`, `cancel-drain`."""
    clusters: Annotated[list[str], Meta(min_length=1)]
    """Their names, or `*` alone for all, also those to come."""
    override: bool = False
    """May end other people's Holds by `release`; each such end is recorded as `hold.overridden`."""

    def faults(self) -> list[str]:
        """What no single field can tell."""
        found = [f"verbs: {verb!r}: want one of {', '.join(VERBS)}" for verb in self.verbs if verb not in VERBS]
        if any(c in self.user for c in "*>") or self.user != self.user.strip() or not self.user.isprintable():
            found.append(f"user: {self.user!r}: want the name of one user, without * or > or spaces around it")
        if ALL in self.clusters and len(self.clusters) > 1:
            found.append(f"clusters: {', '.join(self.clusters)}: want either * alone or names")
        if self.override and "release" not in self.verbs:
            found.append("override: is for the verb release, which verbs does not have")
        return found


class RequestSettings(Part, frozen=True, kw_only=True):
    """Requests over NATS: who may ask for what."""

    allow: list[RequestRight] = []
    """Rights add up. Empty: nobody may ask for anything."""
    max_in_work: Annotated[int, Meta(ge=1, le=10_000)] = 200
    """Requests for a hold that are accepted and not done, at most; more are refused."""


class ForwardSettings(Part, frozen=True, kw_only=True):
    """An HTTP endpoint that events are posted to."""

    name: Name
    url: Annotated[str, Meta(pattern=r"^https?://[^@\s]+$")]
    """Without a password; redirects are not followed."""
    events: list[str] = []
    """Types, such as `drain.drained` or `hold.*`. Empty: all."""
    clusters: list[str] = []
    """Only what happens in these; empty: all, and what belongs to none."""
    workers: list[str] = []
    """Only what is about these: names or host lists. Empty: all."""
    format: Literal["cloudevents-binary", "cloudevents-structured", "slack"] = "cloudevents-binary"
    """How an event looks on HTTP; slack: one line of text."""
    secret_file: str = ""
    """File with the secret that signs each post after Standard Webhooks; read anew at each post."""
    headers_file: str = ""
    """File with headers to send, one `Name: value` a line, such as Authorization; read anew at each post."""
    ca_file: str = ""
    """Certificates to trust instead of the system's."""
    timeout_s: Seconds = 10.0
    """For one post."""
    retry_for_s: Annotated[float, Meta(ge=0, le=7 * 24 * 3600)] = 3600.0
    """So long after its first try an event becomes a dead letter."""
    since: Literal["now", "oldest"] = "now"
    """Where to begin when nothing was ever posted there; after that, where it ended."""

    def faults(self) -> list[str]:
        """What no single field can tell."""
        types = [tag_of(kind) for kind in EVENT_TYPES]
        names = types + [one.rpartition(".")[0] for one in types]
        found = [
            f"events: {one!r} is no type of event, see docs/events.md"
            for one in self.events
            if not any(fnmatchcase(name, one) for name in names)
        ]
        for one in self.workers:
            try:
                expand(one)
            except ValueError as e:
                found.append(f"workers: {e}")
        return found


class Settings(Part, frozen=True, kw_only=True):
    """Everything that can be set."""

    clusters: Annotated[list[ClusterSettings], Meta(min_length=1)]
    policy: Policy = Policy()
    poll: PollSettings = PollSettings()
    jobs: Literal["off", "drains", "all"] = "drains"
    """Of which jobs' beginning and end is told: of none; of those on workers that leave, which are read anyway; of all,
    and then Slurm is asked for all of them each time (10,000 are an answer of 50 MiB)."""
    nats: NatsSettings = NatsSettings()
    kube: KubeSettings = KubeSettings()
    health: HealthSettings = HealthSettings()
    tracing: TracingSettings = TracingSettings()
    log: LogSettings = LogSettings()
    lease: LeaseSettings = LeaseSettings()
    requests: RequestSettings = RequestSettings()
    forward: list[ForwardSettings] = []
    """Where events are posted to."""
    data_dir: str = "~/.local/state/lockstep"
    """Where the NATS server of our own keeps its data."""

    def faults(self) -> list[str]:
        """What no single field can tell."""
        names = [cluster.name for cluster in self.clusters]
        found = [f"clusters: two are called {name!r}" for name in sorted(set(names)) if names.count(name) > 1]
        ends = [endpoint.name for endpoint in self.forward]
        found += [f"forward: two are called {name!r}" for name in sorted(set(ends)) if ends.count(name) > 1]
        for i, endpoint in enumerate(self.forward):
            strange = [name for name in endpoint.clusters if name not in names]
            known = f"want one of {', '.join(names)}"
            found += [f"forward[{i}].clusters: {name!r} is no cluster; {known}" for name in strange]
        for i, right in enumerate(self.requests.allow):
            known = f"want * or one of {', '.join(names)}"
            strange = [c for c in right.clusters if c not in {ALL, *names}]
            found += [f"requests.allow[{i}].clusters: {name!r} is no cluster; {known}" for name in strange]
        return found

    @property
    def data_path(self) -> Path:
        """`data_dir` with `~` resolved."""
        return Path(self.data_dir).expanduser()

    @property
    def lease_namespace(self) -> str:
        """Where the Leases are."""
        return self.lease.namespace or self.clusters[0].namespace

    def cluster(self, name: str) -> ClusterSettings:
        """The cluster of that name.

        Raises:
            KeyError: there is none.
        """
        for cluster in self.clusters:
            if cluster.name == name:
                return cluster
        raise KeyError(name)
