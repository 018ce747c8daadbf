"""The texts of Slurm's configuration files. Pure functions: no file, no clock.

The same files serve slurmctld, slurmrestd, slurmds that run as processes beside them, and (sent by slurmctld,
"configless") those in pods.
"""

from dataclasses import dataclass, field

from .rootfs import GPUS, SLURM

JWT_KEY = "/etc/slurm/jwt_hs256.key"
GPU_TYPE = "h100"


@dataclass(frozen=True, kw_only=True)
class ClusterConf:
    """What differs from cluster to cluster."""

    name: str
    version: str
    host: str
    """This machine's host name: slurmctld starts only where it finds its own."""
    address: str
    """Where slurmds and clients reach slurmctld; from pods too."""
    port: int
    slurmd_timeout_s: int = 30
    """After this long without an answer a node is DOWN; slurmctld asks three times within it."""
    extra: tuple[str, ...] = field(default=())
    """Further lines, such as a TopologyPlugin; Slurm refuses a key that stands twice."""


def slurm_conf(conf: ClusterConf) -> str:
    """slurm.conf. Nodes are dynamic: none is named, and each slurmd says at its registration what it has."""
    lines = [
        f"ClusterName={conf.name}",
        f"SlurmctldHost={conf.host}({conf.address})",
        f"SlurmctldPort={conf.port}",
        f"SlurmUser={SLURM.name}",
        "SlurmdUser=root",
        "AuthType=auth/slurm",
        "AuthInfo=use_client_ids",
        "AuthAltTypes=auth/jwt",
        f"AuthAltParameters=jwt_key={JWT_KEY}",
        "CredType=cred/slurm",
        "CommunicationParameters=NoCtldInAddrAny",
        "StateSaveLocation=/var/spool/slurmctld",
        "SlurmctldPidFile=/run/slurmctld/slurmctld.pid",
        "SlurmdSpoolDir=/var/spool/slurmd/%n",
        "SlurmdPidFile=/run/slurm/slurmd-%n.pid",
        # A small machine may claim 64 CPUs and half a terabyte.
        "SlurmctldParameters=config_overrides,enable_configless",
        "SlurmdParameters=config_overrides",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_Core_Memory",
        "DefMemPerCPU=1000",
        "GresTypes=gpu",
        "ProctrackType=proctrack/linuxproc",
        "TaskPlugin=task/none",
        "JobAcctGatherType=jobacct_gather/none",
        "MaxNodeCount=12000",
        "TreeWidth=65533",
        "ReturnToService=1",
        f"SlurmdTimeout={conf.slurmd_timeout_s}",
        "KillWait=2",
        "DebugFlags=NO_CONF_HASH",
        "PartitionName=train Nodes=ALL Default=YES MaxTime=INFINITE State=UP",
    ]
    if conf.version >= "25.11":
        lines.append("MetricsType=metrics/openmetrics")
    return "\n".join([*lines, *conf.extra]) + "\n"


def gres_conf() -> str:
    """gres.conf: the fake GPUs of the root file systems."""
    return f"AutoDetect=off\nName=gpu Type={GPU_TYPE} File=/dev/nvidia[0-{GPUS - 1}]\n"


def cgroup_conf() -> str:
    """cgroup.conf: jobs are followed by process tree, so that cgroup v1, v2 and containers are all the same."""
    return "CgroupPlugin=disabled\n"


def node_conf(*, port: int, features: str = "worker", cpus: int = 64, memory_mb: int = 512_000) -> str:
    """What a dynamic slurmd says of itself (its `--conf`)."""
    return f"CPUs={cpus} RealMemory={memory_mb} Gres=gpu:{GPU_TYPE}:{GPUS} Feature={features} Port={port}"
