"""Values that a site might have, and values that are wrong: what the tests of the chart are tried on."""

from typing import Any

Values = dict[str, Any]

MAIN: Values = {"name": "main", "namespace": "slurm", "url": "http://10.0.0.9:6820"}
_KEY = {"name": "slurm-auth-jwt", "key": "jwt.key"}
_ASKING = {
    "allow": [
        {"user": "ops", "verbs": ["release"], "clusters": ["*"], "override": True},
        {"user": "ops", "verbs": ["hold"], "clusters": ["*"]},
        {"user": "ci", "verbs": ["hold", "release"], "clusters": ["main"]},
    ]
}
_PAGER = {
    "name": "pager",
    "url": "https://example.com/hook",
    "events": ["drain.*"],
    "secretRef": {"name": "pager", "key": "secret"},
    "headersSecretRef": {"name": "pager", "key": "headers"},
    "caSecretRef": {"name": "pager", "key": "ca.crt"},
}

GOOD: dict[str, Values] = {
    "one-name": {"clusters": [{"name": "slurm"}]},
    "a-slinky-site": {
        "clusters": [
            {"name": "slurm", "namespace": "slurm", "url": "http://slurm-restapi.slurm:6820", "keySecretRef": _KEY}
        ],
        "policy": {"protect": "off", "conditions": False},
    },
    "a-token": {"clusters": [{**MAIN, "tokenSecretRef": {"name": "lockstep-jwt-slurm", "key": "SLURM_JWT"}}]},
    "three-clusters": {
        "clusters": [
            MAIN,
            {**MAIN, "name": "small", "workers": {"labels": {"app": "slurmd"}, "hybrid": True}},
            {"name": "research", "namespace": "research", "url": "https://slurmrestd.example.com", "user": "root"},
        ]
    },
    "every-setting": {
        "clusters": [MAIN],
        "policy": {
            "protect": "busy",
            "mirror": "cordon",
            "node_conditions": ["Ready=False", "taint:example.com/repair"],
            "stale_after_s": 20,
            "reassert_every_s": 60.5,
        },
        "poll": {"min_interval_s": 0.5, "max_interval_s": 10, "max_share": 0.1},
        "jobs": "off",
        "tracing": {"endpoint": "http://otel.example.com:4318", "sample": 0.1},
        "log": {"level": "debug"},
        "lease": {"duration_s": 30},
        "kube": {"qps": 50, "concurrency": 8},
        "nats": {"events_max_bytes": 1 << 30, "events_max_age_s": 86400},
    },
    "requests-and-people": {
        "clusters": [MAIN],
        "requests": _ASKING,
        "nats": {"auth": {"readers": ["guest", "grafana"], "admins": ["admin"]}},
    },
    "forward": {"clusters": [MAIN], "forward": [_PAGER, {"name": "chat", "url": "https://x.example.com/y"}]},
    "three-nats-servers": {"clusters": [MAIN], "nats": {"replicas": 3, "storage": {"storageClass": "fast"}}},
    "nats-with-tls": {"clusters": [MAIN], "nats": {"replicas": 3, "tls": {"secretName": "nats-tls"}}},
    "nats-from-git": {"clusters": [MAIN], "nats": {"auth": {"existingSecret": "nats-users"}}},
    "nats-on-a-claim": {"clusters": [MAIN], "nats": {"storage": {"existingClaim": "nats", "size": "20Gi"}}},
    "nats-elsewhere": {
        "clusters": [MAIN],
        "requests": {"allow": [{"user": "Anna Example", "verbs": ["hold"], "clusters": ["main"]}]},
        "nats": {
            "enabled": False,
            "url": "tls://a.example.com:4222,tls://b.example.com",
            "user": "lockstep-{service}",
            "passwordSecretRef": {"name": "nats", "key": "{service}.password"},
            "caSecretRef": {"name": "nats", "key": "ca.crt"},
            "clientCertificate": "nats-client",
            "replicas": 3,
        },
    },
    "nats-with-credentials": {
        "clusters": [MAIN],
        "nats": {"enabled": False, "url": "nats://nats:4222", "credsSecretRef": {"name": "nats", "key": "all.creds"}},
    },
    "where-pods-run": {
        "clusters": [MAIN],
        "imagePullSecrets": [{"name": "mirror"}],
        "image": {"repository": "mirror.example.com:5000/lockstep", "digest": f"sha256:{'ab' * 32}"},
        "pods": {
            "replicas": 3,
            "nodeSelector": {"node-role.kubernetes.io/control-plane": ""},
            "tolerations": [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}],
            "priorityClassName": "system-cluster-critical",
            "topologySpreadConstraints": [
                {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "ScheduleAnyway"}
            ],
            "podLabels": {"team": "hpc", "app.kubernetes.io/name": "not-taken"},
            "podAnnotations": {"example.com/note": "yes"},
            "extraEnv": [{"name": "TZ", "value": "UTC"}],
        },
        "services": {
            "drain": {"replicas": 1, "nodeSelector": {"disk": "ssd"}, "resources": {"limits": {"memory": "1Gi"}}}
        },
    },
    "locked-in": {
        "clusters": [MAIN, {"name": "slurm"}],
        "forward": [_PAGER],
        "jaeger": {"enabled": True},
        "networkPolicy": {
            "enabled": True,
            "apiServer": [{"ipBlock": {"cidr": "10.145.0.1/32"}}],
            "apiServerPorts": [6443],
            "metricsFrom": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}],
        },
    },
    "watched": {
        "clusters": [MAIN],
        "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
        "prometheusRule": {"enabled": True, "runbooks": "https://example.com/lockstep/"},
        "dashboards": {"enabled": True, "annotations": {"grafana_folder": "Slurm"}},
        "jaeger": {"enabled": True},
    },
    "cleaned-up-after": {
        "clusters": [MAIN, {"name": "research", "namespace": "research"}],
        "nats": {"enabled": False, "url": "nats://nats:4222", "credsSecretRef": {"name": "nats", "key": "all.creds"}},
        "cleanup": {"onUninstall": True, "undrain": True, "holds": True},
    },
    "somebody-else-makes-roles-and-crds": {
        "clusters": [MAIN],
        "rbac": {"create": False},
        "crds": {"install": False},
        "podDisruptionBudget": {"enabled": False},
        "fullnameOverride": "slurm-sync",
    },
}
"""By a name that says what is tried. The chart must make something that a cluster takes of each."""

_TWICE = {"user": "drain", "verbs": ["hold"], "clusters": ["*"]}

BAD: dict[str, tuple[str, Values]] = {
    "no-cluster": ("clusters", {}),
    "a-cluster-without-a-name": ("name", {"clusters": [{"namespace": "slurm"}]}),
    "a-name-with-capitals": ("/clusters/0/name", {"clusters": [{"name": "Main"}]}),
    "an-address-without-a-scheme": ("/clusters/0/url", {"clusters": [{**MAIN, "url": "slurm:6820"}]}),
    "a-key-and-a-token": (
        "/clusters/0",
        {"clusters": [{**MAIN, "keySecretRef": _KEY, "tokenSecretRef": _KEY}]},
    ),
    "a-secret-without-a-key": ("/clusters/0/keySecretRef", {"clusters": [{**MAIN, "keySecretRef": {"name": "x"}}]}),
    "a-file-instead-of-a-secret": ("key_file", {"clusters": [{**MAIN, "key_file": "/etc/key"}]}),
    "two-clusters-of-one-name": ("clusters: two are called", {"clusters": [MAIN, MAIN]}),
    "a-value-that-there-is-not": ("polcy", {"clusters": [MAIN], "polcy": {}}),
    "a-setting-that-there-is-not": ("protct", {"clusters": [MAIN], "policy": {"protct": "off"}}),
    "a-word-that-is-not-allowed": ("/policy/protect", {"clusters": [MAIN], "policy": {"protect": "always"}}),
    "too-slow": ("/poll/max_interval_s", {"clusters": [MAIN], "poll": {"max_interval_s": 9999}}),
    "slowest-below-quickest": ("poll.min_interval_s", {"clusters": [MAIN], "poll": {"min_interval_s": 6}}),
    "jobs": ("/jobs", {"clusters": [MAIN], "jobs": "some"}),
    "a-lease-too-short": ("/lease/duration_s", {"clusters": [MAIN], "lease": {"duration_s": 1}}),
    "requests-for-a-cluster-that-there-is-not": (
        "requests.allow[0].clusters",
        {"clusters": [MAIN], "requests": {"allow": [{"user": "ops", "verbs": ["hold"], "clusters": ["mian"]}]}},
    ),
    "a-user-with-a-space": (
        "requests.allow[0].user",
        {"clusters": [MAIN], "requests": {"allow": [{"user": "a b", "verbs": ["hold"], "clusters": ["*"]}]}},
    ),
    "a-person-called-as-a-service": ("nats.auth", {"clusters": [MAIN], "requests": {"allow": [_TWICE]}}),
    "two-endpoints-of-one-name": ("forward: two are called", {"clusters": [MAIN], "forward": [_PAGER, _PAGER]}),
    "an-endpoint-without-an-address": ("url", {"clusters": [MAIN], "forward": [{"name": "x"}]}),
    "a-password-in-an-address": ("/nats/url", {"clusters": [MAIN], "nats": {"url": "nats://u:p@host"}}),
    "an-address-and-a-server-of-our-own": ("nats.url", {"clusters": [MAIN], "nats": {"url": "nats://host"}}),
    "no-nats-at-all": ("nats.url", {"clusters": [MAIN], "nats": {"enabled": False}}),
    "a-user-without-a-password": (
        "nats.user",
        {"clusters": [MAIN], "nats": {"enabled": False, "url": "nats://host", "user": "x"}},
    ),
    "two-servers": ("/nats/replicas", {"clusters": [MAIN], "nats": {"replicas": 2}}),
    "one-claim-for-three": (
        "nats.storage.existingClaim",
        {"clusters": [MAIN], "nats": {"replicas": 3, "storage": {"existingClaim": "x"}}},
    ),
    "no-room-for-the-streams": ("nats.storage.size", {"clusters": [MAIN], "nats": {"storage": {"size": "1Gi"}}}),
    "replicas-in-words": ("/pods/replicas", {"clusters": [MAIN], "pods": {"replicas": "two"}}),
    "a-service-that-there-is-not": ("poller", {"clusters": [MAIN], "services": {"poller": {}}}),
}
"""What is wrong, what the refusal must name, and the values."""
