"""`values.schema.json`: what a value may be. Settings are as msgspec says of their types; the rest is written here."""

from typing import Any

from lockstep.contracts.asyncapi.schemas import components
from lockstep.contracts.policy import Policy
from lockstep.runtime import settings

Schema = dict[str, Any]
DIALECT = "http://json-schema.org/draft-07/schema#"
"""The one that every Helm knows."""
KINDS = [
    Policy,
    settings.ClusterSettings,
    settings.PollSettings,
    settings.RequestSettings,
    settings.ForwardSettings,
    settings.TracingSettings,
    settings.LogSettings,
    settings.KubeSettings,
    settings.LeaseSettings,
    settings.NatsSettings,
]
TEXT: Schema = {"type": "string"}
BOOL: Schema = {"type": "boolean"}
MAP: Schema = {"type": "object"}
LABELS: Schema = {"type": "object", "additionalProperties": {"type": "string"}}
NAME: Schema = {"type": "string", "pattern": "^$|^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", "maxLength": 253}
"""Of a Kubernetes object, or empty."""
USER: Schema = {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "maxLength": 40}
PULL: Schema = {"enum": ["Always", "IfNotPresent", "Never"]}
PORTS: Schema = {"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 1, "maximum": 65535}}
PEERS: Schema = {
    "type": "array",
    "items": {
        "type": "object",
        "additionalProperties": False,
        "minProperties": 1,
        "properties": {"podSelector": MAP, "namespaceSelector": MAP, "ipBlock": MAP},
    },
}
REF: Schema = {
    "type": "object",
    "additionalProperties": False,
    "required": ["name", "key"],
    "properties": {
        "name": {**NAME, "minLength": 1},
        "key": {"type": "string", "pattern": "^[-._a-zA-Z0-9{}]+$", "maxLength": 253},
    },
}
NO_REF: Schema = {"anyOf": [{"$ref": "#/$defs/SecretRef"}, {"type": "object", "maxProperties": 0}]}


def schema() -> Schema:
    """The whole document."""
    parts = components(KINDS, "#/$defs/{name}")
    parts |= {
        "SecretRef": REF,
        "ClusterSettings": _referring(
            parts["ClusterSettings"], {"keySecretRef": "key_file", "tokenSecretRef": "token_file"}, required=["name"]
        ),
        "ForwardSettings": _referring(
            parts["ForwardSettings"],
            {"secretRef": "secret_file", "headersSecretRef": "headers_file", "caSecretRef": "ca_file"},
            required=["name", "url"],
        ),
        "LeaseSettings": _only(parts["LeaseSettings"], "duration_s"),
        "KubeSettings": _only(parts["KubeSettings"], "qps", "concurrency"),
        "Pods": _pods(),
    }
    parts["ClusterSettings"]["not"] = {"required": ["keySecretRef", "tokenSecretRef"]}
    nats = parts.pop("NatsSettings")["properties"]
    clusters = {"type": "array", "minItems": 1, "items": _to("ClusterSettings")}
    properties: Schema = {
        "global": MAP,
        "nameOverride": USER | {"pattern": f"^$|{USER['pattern']}"},
        "fullnameOverride": USER | {"pattern": f"^$|{USER['pattern']}"},
        "clusters": clusters,
        "policy": _to("Policy"),
        "poll": _to("PollSettings"),
        "jobs": {"enum": ["off", "drains", "all"]},
        "requests": _to("RequestSettings"),
        "forward": {"type": "array", "items": _to("ForwardSettings")},
        "tracing": _to("TracingSettings"),
        "log": _to("LogSettings"),
        "lease": _to("LeaseSettings"),
        "kube": _to("KubeSettings"),
        "nats": _nats(nats),
        "image": _image(),
        "imagePullSecrets": {"type": "array", "items": _object(name=NAME)},
        "pods": _to("Pods"),
        "services": _object(
            **dict.fromkeys(("pod-watcher", "slurm-poller", "drain", "reconciler", "forward"), _to("Pods"))
        ),
        "podDisruptionBudget": _object(enabled=BOOL),
        "networkPolicy": _object(
            enabled=BOOL,
            **dict.fromkeys(("dnsPorts", "apiServerPorts"), PORTS),
            **dict.fromkeys(("apiServer", "slurm", "metricsFrom", "natsFrom"), PEERS),
        ),
        "rbac": _object(create=BOOL),
        "crds": _object(install=BOOL),
        "cleanup": _object(onUninstall=BOOL, undrain=BOOL, holds=BOOL),
        "serviceMonitor": _object(
            enabled=BOOL, labels=LABELS, interval={"type": "string", "pattern": "^[0-9]+(ms|s|m)$"}
        ),
        "prometheusRule": _object(
            enabled=BOOL, labels=LABELS, runbooks={"type": "string", "pattern": r"^(https?://\S+)?$"}
        ),
        "dashboards": _object(enabled=BOOL, labels=LABELS, annotations=LABELS),
        "jaeger": _object(enabled=BOOL, image=_image(), traces={"type": "integer", "minimum": 1}, pods=_to("Pods")),
    }
    return {"$schema": DIALECT, "title": "Values of the chart lockstep", **_object(**properties), "$defs": parts}


def _to(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}


def _object(**properties: Schema) -> Schema:
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _image() -> Schema:
    return _object(
        repository={"type": "string", "pattern": r"^[^\s:@]+(:[0-9]+/[^\s:@]+)?$"},
        tag={"type": "string", "pattern": r"^[A-Za-z0-9_.-]*$", "maxLength": 128},
        digest={"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"},
        pullPolicy=PULL,
    )


def _pods() -> Schema:
    env = {"type": "array", "items": {"type": "object", "required": ["name"], "properties": {"name": {"minLength": 1}}}}
    return _object(
        replicas={"type": "integer", "minimum": 0, "maximum": 9},
        resources=_object(requests=MAP, limits=MAP, claims={"type": "array"}),
        nodeSelector=LABELS,
        tolerations={"type": "array", "items": MAP},
        affinity=_object(nodeAffinity=MAP, podAffinity=MAP, podAntiAffinity=MAP),
        topologySpreadConstraints={"type": "array", "items": {**MAP, "required": ["maxSkew", "topologyKey"]}},
        priorityClassName=NAME,
        podLabels=LABELS,
        podAnnotations=LABELS,
        extraEnv=env,
    )


def _nats(setting: Schema) -> Schema:
    users = {"type": "array", "items": USER, "uniqueItems": True}
    storage = _object(
        size={"type": "string", "pattern": "^[1-9][0-9]{0,5}(Mi|Gi|Ti)$"}, storageClass=NAME, existingClaim=NAME
    )
    return _object(
        enabled=BOOL,
        url=setting["url"],
        user={**TEXT, "maxLength": 120},
        passwordSecretRef=NO_REF,
        credsSecretRef=NO_REF,
        caSecretRef=NO_REF,
        clientCertificate=NAME,
        events_max_bytes=setting["events_max_bytes"],
        events_max_age_s=setting["events_max_age_s"],
        replicas=setting["replicas"],
        image=_image(),
        storage=storage,
        auth=_object(existingSecret=NAME, readers=users, admins=users),
        tls=_object(secretName=NAME),
        pods=_to("Pods"),
    )


def _referring(part: Schema, files: dict[str, str], *, required: list[str]) -> Schema:
    """A setting's schema with references to Secrets instead of files."""
    properties = {name: schema for name, schema in part["properties"].items() if name not in files.values()}
    refs: Schema = {name: _to("SecretRef") for name in files}
    return {**part, "properties": properties | refs, "required": required}


def _only(part: Schema, *names: str) -> Schema:
    """A setting's schema without what the chart itself decides."""
    return {**part, "properties": {name: part["properties"][name] for name in names}}
