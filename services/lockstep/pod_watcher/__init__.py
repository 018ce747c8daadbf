"""Watches Kubernetes and tells what it shows.

Reads: Nodes, worker Pods, Holds. Publishes: the facts `kube.node`, `kube.pod`, `kube.hold` and the heartbeat
`source.health` of `kube`; the events `node.*`, `pod.*`, `source.lost` and `source.back` of `kube`. Each event comes
before the fact that it is the cause of. Alone may write: these facts.
"""
