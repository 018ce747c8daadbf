"""Which flow a write belongs to."""

from collections.abc import Mapping, Sequence

from lockstep.base import clock
from lockstep.fleet.flows import Flows, Origin, attributes_of, facts_about
from lockstep.fleet.worker import Worker
from lockstep.reconciler.model import Action, NodeAction, ShowState, WorkerAction
from lockstep.runtime.tracing import Step


def on_worker(worker: Worker, action: WorkerAction, flows: Flows) -> Step:
    """The span of one write on a worker. What a pod is to show follows Slurm; all else follows what is wanted."""
    desired = worker.desired
    first = worker.slurm if isinstance(action, ShowState) else desired
    began = desired.traceparent if desired else ""
    origin = flows.origin(facts_about(worker), clock.now(), first=first, began=began)
    return _step(action, origin, attributes_of(worker))


def on_node(node: str, workers: Sequence[Worker], action: NodeAction, flows: Flows) -> Step:
    """The span of one write on a Kubernetes node: it follows what is wanted of the workers there."""
    desired = [worker.desired for worker in workers if worker.desired]
    began = next((d.traceparent for d in desired if d.traceparent), "")
    origin = flows.origin(desired, clock.now(), began=began)
    return _step(action, origin, {"k8s.node.name": node})


def _step(action: Action, origin: Origin, about: Mapping[str, str]) -> Step:
    tag = str(type(action).__struct_config__.tag)
    attributes = {**about, "lockstep.because": action.because}
    return Step(tag, origin.traceparent, origin.links, attributes, origin.subject)
