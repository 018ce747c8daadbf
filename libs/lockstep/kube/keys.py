"""Every label, annotation and condition name that Lockstep reads or writes on Kubernetes objects.

Slinky's keys keep their names, so that dashboards and scripts go on working.
"""

# Slinky's (slurm-operator api/v1beta1/well_known.go)
POD_CORDON = "nodeset.slinky.slurm.net/pod-cordon"
"""Pod annotation; exactly `true`: its Slurm node is wanted drained."""
NODE_CORDON_REASON = "nodeset.slinky.slurm.net/node-cordon-reason"
"""Node annotation: why the node is cordoned, in a person's words."""
POD_PROTECT = "nodeset.slinky.slurm.net/pod-protect"
"""Pod label; `true`: the disruption budget of the cluster holds this pod."""
CLUSTER = "slinky.slurm.net/cluster"
"""Pod label: the Slurm cluster."""
SLURM_NODE_NAME = "slinky.slurm.net/slurm-nodename"
"""Pod label: the Slurm node's name, where it is not the pod's host name."""
APP = "app.kubernetes.io/name"
"""Pod label; `slurmd` on workers."""
SLURM_STATE_PREFIX = "SlurmNodeState"
"""Pod conditions that show the Slurm node's state begin with this."""

# Ours
IN_SERVICE = "lockstep.sh/InService"
"""Node condition: whether the worker takes jobs; the message is the reason that Slurm shows."""
SLURM_READ = "lockstep.sh/SlurmRead"
"""Condition of the slurm-poller's Deployment: whether Slurm can be read; the message is why not."""
MIRRORED_CORDON = "lockstep.sh/mirrored-cordon"
"""Node annotation; `true`: the cordon mirrors a hold that stands elsewhere, and is no hold itself."""
IGNORE_CONDITIONS = "lockstep.sh/ignore-conditions"
"""Node annotation: comma separated conditions, taints or labels of the node that count as no hold."""
OWNER = "lockstep.sh/owner"
"""Hold annotation: who created it. Written by the API server's admission policy."""
REQUEST = "lockstep.sh/request"
"""Hold annotation: the id of the request that it stands for. The policy lets only those set it who may `delegate`."""
REQUESTED_BY = "lockstep.sh/requested-by"
"""Hold annotation: the NATS user that asked for it, who is its owner then. Set by the same."""
TRACEPARENT = "lockstep.sh/traceparent"
"""Hold annotation: the W3C trace context in which it was asked for; the drain goes on in that trace."""

FIELD_MANAGER = "lockstep"
"""Our name in `managedFields` and in Events."""

TRUE = "true"
"""The one value that switches a label or annotation on."""


def pdb_name(cluster: str) -> str:
    """The disruption budget of one Slurm cluster, named as slurm-operator names it."""
    return f"slurm-workers-pdb-{cluster}"


def protected(cluster: str) -> dict[str, str]:
    """The labels of the pods that this budget holds."""
    return {POD_PROTECT: TRUE, CLUSTER: cluster}
