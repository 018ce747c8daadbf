"""A fleet as the command sees it, and arguments as the parser gives them."""

import io
from argparse import Namespace
from typing import Any

from lockstep.cli.output import Out
from lockstep.cli.parser import build
from lockstep.cli.view import Cluster, Fleet
from lockstep.contracts.facts import Fact, KubeNode, KubePod, SlurmNode
from tests.builders import NOW, a_node, a_pod, a_slurm_node, a_table


def a_fleet(*facts: Fact, **fields: Any) -> Fleet:
    """A fleet of these facts, all sources alive."""
    known: dict[str, Any] = {"now": NOW, "source": "nats", "clusters": [Cluster(name="main", namespace="slurm")]}
    return Fleet(table=a_table(*facts), **(known | fields))


def parts(number: int, state: str = "IDLE", **slurm: Any) -> tuple[SlurmNode, KubePod, KubeNode]:
    """The three facts of worker `gpu-<number>` on host-<number>."""
    name, host = f"gpu-{number}", f"host-{number}"
    return (
        a_slurm_node(state, name=name, **slurm),
        a_pod(name=name, worker=name, node=host, uid=f"pod-{number}", labels={"rack": str(number % 2)}),
        a_node(name=host, uid=f"node-{number}"),
    )


def args(*words: str) -> Namespace:
    """The arguments of a command line, without the word `lockstep`."""
    return build().parse_args(words)


def captured(terminal: bool = False) -> tuple[Out, io.StringIO, io.StringIO]:
    """Somewhere to write, and what was written to the result and beside it."""
    out, err = io.StringIO(), io.StringIO()
    if terminal:
        out.isatty = lambda: True  # type: ignore[method-assign]
    return Out(out, err), out, err
