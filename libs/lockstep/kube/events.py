"""Kubernetes Events: what people see in `kubectl describe` and `kubectl events`."""

import hashlib
from datetime import datetime
from typing import Any

from lockstep.base.text import one_line
from lockstep.kube import keys
from lockstep.kube.port import Regarding

MAX_MESSAGE = 1024
"""Characters of an Event's note (`validation/events.go`)."""


def event_namespace(regarding: Regarding) -> str:
    """Events about nodes live in `default`."""
    return regarding.namespace or "default"


def event_name(regarding: Regarding, reason: str, message: str, kind: str) -> str:
    """The same for the same news, so that saying it again finds the first one."""
    news = repr((regarding.kind, regarding.uid, regarding.name, reason, message, kind))
    return f"{regarding.name[:200].rstrip('.-')}.{hashlib.sha256(news.encode()).hexdigest()[:16]}"


def event_body(regarding: Regarding, reason: str, message: str, kind: str, at: datetime) -> dict[str, Any]:
    """A new Event."""
    when = moment(at)
    return {
        "metadata": {
            "name": event_name(regarding, reason, message, kind),
            "namespace": event_namespace(regarding),
        },
        "involvedObject": {
            "apiVersion": regarding.api_version,
            "kind": regarding.kind,
            "namespace": regarding.namespace,
            "name": regarding.name,
            "uid": regarding.uid,
        },
        "reason": reason,
        "message": one_line(message, limit=MAX_MESSAGE),
        "type": kind,
        "count": 1,
        "firstTimestamp": when,
        "lastTimestamp": when,
        "source": {"component": keys.FIELD_MANAGER},
        "reportingComponent": keys.FIELD_MANAGER,
    }


def moment(at: datetime) -> str:
    """A time as `metav1.Time` writes it: UTC, whole seconds."""
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")
