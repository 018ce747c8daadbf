"""Nodes, jobs and reservations of the fake Slurm in the JSON of Slurm's REST API."""

from typing import Any

from lockstep.slurm.hostlist import compress
from tests.fakes.slurm import FakeJob, FakeNode

NUMBER = {"set": True, "infinite": False}


def node_json(node: FakeNode, version: str) -> dict[str, Any]:
    """A node, as a slurmd of this version shows it."""
    busy = node.base in {"MIXED", "ALLOCATED"}
    flags = node.flags | ({"NOT_RESPONDING"} if node.quiet_until else set())
    return {
        "name": node.name,
        "state": [node.base, *sorted(flags)],
        "reason": node.reason,
        "reason_set_by_user": "slurm" if node.reason else "",
        "reason_changed_at": NUMBER | {"number": node.reason_at},
        "boot_time": NUMBER | {"number": 0 if node.quiet_until else node.boot_time},
        "slurmd_start_time": NUMBER | {"number": node.boot_time + 60},
        "alloc_cpus": 2 if busy else 0,
        "alloc_memory": 2000 if busy else 0,
        "gres": "gpu:h100:8",
        "gres_used": "gpu:h100:2(IDX:0-1)" if busy else "gpu:h100:0(IDX:N/A)",
        "tres_used": "cpu=2,mem=2000M" if busy else "",
        "features": ["worker"],
        "active_features": ["worker"],
        "partitions": ["train"],
        "version": version,
    }


def job_json(job: FakeJob) -> dict[str, Any]:
    """A job."""
    return {
        "job_id": job.job_id,
        "job_state": job.states,
        "user_name": "root",
        "partition": "train",
        "nodes": compress(job.nodes) if "PENDING" not in job.states else "",
        "start_time": NUMBER | {"number": job.started},
        "end_time": {"set": False, "infinite": True, "number": 0},
        "requeue": job.can_requeue,
        "batch_flag": True,
    }


def reservation_json(name: str, nodes: list[str]) -> dict[str, Any]:
    """A maintenance reservation."""
    return {
        "name": name,
        "node_list": compress(nodes),
        "start_time": NUMBER | {"number": 1_700_000_000},
        "end_time": NUMBER | {"number": 1_700_003_600},
        "flags": ["MAINT", "IGNORE_JOBS", "SPEC_NODES"],
    }
