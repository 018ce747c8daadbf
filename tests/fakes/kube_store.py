"""What the fake API server keeps: objects as the JSON they came in, a version for each change, and its rules.

Versions and uids are checked, patches are merged and lists are paged as the real one does.
"""

from datetime import UTC, datetime
from typing import Any

Object = dict[str, Any]
Line = tuple[int, str, str, Object]
"""Version, resource, type and object of one change."""

WITH_STATUS = {"nodes", "pods", "holds", "deployments"}


class Answer(Exception):
    """A Status instead of an object."""

    def __init__(self, code: int, reason: str, message: str, **more: Any) -> None:
        super().__init__(message)
        self.code, self.body = code, status_object(code, reason, message, **more)


def status_object(code: int, reason: str, message: str, **more: Any) -> Object:
    """How Kubernetes says that something went wrong."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message,
        **more,
    }


class Store:
    """The objects, and the log of their changes."""

    def __init__(self) -> None:
        self.version = 100
        self.oldest = 0
        """Versions below this are compacted: asking for them is answered with 410."""
        self._objects: dict[tuple[str, str, str], Object] = {}
        self._log: list[Line] = []

    def put(self, resource: str, name: str, namespace: str = "", **fields: Any) -> Object:
        """Create an object, or change its metadata, spec and status (each as a whole), and tell the watchers."""
        before = self._objects.get((resource, namespace, name))
        obj: Object = before or {"metadata": {"name": name, "uid": f"uid-{self.version + 1}"}}
        meta = obj["metadata"] | ({"namespace": namespace} if namespace else {}) | fields.pop("metadata", {})
        return self._store(resource, obj | fields | {"metadata": meta}, "MODIFIED" if before else "ADDED")

    def remove(self, resource: str, name: str, namespace: str = "") -> None:
        """Delete an object and tell the watchers."""
        obj = self._objects.pop((resource, namespace, name))
        self._tell(resource, "DELETED", obj)

    def get(self, resource: str, name: str, namespace: str = "") -> Object:
        """An object as it is stored.

        Raises:
            KeyError: there is none.
        """
        return self._objects[resource, namespace, name]

    def objects(self, resource: str) -> list[Object]:
        """All objects of one kind as they are stored."""
        return [obj for (kind, _, _), obj in self._objects.items() if kind == resource]

    def compact(self) -> None:
        """Forget all changes so far: whoever watches from before must list."""
        self.oldest = self.version

    # What a request does to it

    def _list(self, resource: str, namespace: str, query: dict[str, str]) -> Object:
        start, version = 0, self.version
        if token := query.get("continue"):
            start, version = map(int, token.split("@"))
            if version < self.oldest:
                raise Answer(410, "Expired", "The provided continue parameter is too old")
        items = [o for (r, _, _), o in sorted(self._objects.items()) if r == resource and matches(o, namespace, query)]
        limit = int(query.get("limit", 0)) or len(items)
        more = f"{start + limit}@{version}" if start + limit < len(items) else ""
        return {
            "kind": "List",
            "metadata": {"resourceVersion": str(version), "continue": more},
            "items": items[start : start + limit],
        }

    def _create(self, resource: str, namespace: str, body: Object) -> Object:
        name = body["metadata"]["name"]
        if (resource, namespace, name) in self._objects:
            raise Answer(409, "AlreadyExists", f'{resource} "{name}" already exists')
        stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")  # noqa: TID251  the API server's clock
        meta = {k: v for k, v in body["metadata"].items() if v}
        meta |= {"creationTimestamp": stamp, "uid": f"uid-{self.version + 1}"}
        meta |= {"namespace": namespace} if namespace else {}
        return self._store(resource, body | {"metadata": meta}, "ADDED")

    def _patch(self, resource: str, found: Object, body: Any, kind: str, subresource: str, *, manager: str) -> Object:
        name = found["metadata"]["name"]
        self._check(found, body.get("metadata", {}), name)
        after = _merged(found, body, strategic=kind.startswith("application/strategic"))
        if resource in WITH_STATUS:
            kept = "status" if not subresource else "spec"
            after = after | ({kept: found[kept]} if kept in found else {})
        if "unschedulable" in body.get("spec", {}):
            after["metadata"] = after["metadata"] | {"managedFields": _set_by(manager, body["spec"]["unschedulable"])}
        return self._store(resource, after, "MODIFIED")

    def _check(self, found: Object, wanted: Object, name: str) -> None:
        meta = found["metadata"]
        if wanted.get("uid") not in {None, meta["uid"]}:
            raise Answer(409, "Conflict", f"{name}: the UID in the precondition ({wanted['uid']}) is not {meta['uid']}")
        if wanted.get("resourceVersion") not in {None, "", meta["resourceVersion"]}:
            raise Answer(409, "Conflict", f"{name}: the object has been modified")

    # How it is done

    def _store(self, resource: str, obj: Object, what: str) -> Object:
        meta = obj["metadata"]
        obj = obj | {"metadata": meta | {"resourceVersion": str(self.version + 1)}}
        self._objects[resource, meta.get("namespace", ""), meta["name"]] = obj
        self._tell(resource, what, obj)
        return obj

    def _tell(self, resource: str, what: str, obj: Object) -> None:
        self.version += 1
        obj = obj | {"metadata": obj["metadata"] | {"resourceVersion": str(self.version)}}
        self._log.append((self.version, resource, what, obj))


def matches(obj: Object, namespace: str, query: dict[str, str]) -> bool:
    """Whether the namespace and the query's label selector select it."""
    labels = obj["metadata"].get("labels", {})
    wanted = [pair.split("=", 1) for pair in query.get("labelSelector", "").split(",") if pair]
    inside = not namespace or obj["metadata"].get("namespace", "") == namespace
    return inside and all(labels.get(key) == value for key, value in wanted)


def _set_by(manager: str, value: object) -> list[Object]:
    """Who set `spec.unschedulable`; an empty record, but a record, when it was removed."""
    fields = {"f:spec": {"f:unschedulable": {}}} if value else {"f:metadata": {}}
    return [{"manager": manager, "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": fields}]


def _merged(before: Any, patch: Any, *, strategic: bool) -> Any:
    """RFC 7386; with `strategic`, lists of conditions are merged by their type."""
    if not isinstance(patch, dict):
        return patch
    after = dict(before) if isinstance(before, dict) else {}
    for key, value in patch.items():
        if value is None:
            after.pop(key, None)
        elif strategic and key == "conditions":
            after[key] = _conditions(after.get(key, []), value)
        else:
            after[key] = _merged(after.get(key), value, strategic=strategic)
    return after


def _conditions(before: list[Object], patch: list[Object]) -> list[Object]:
    after = {c["type"]: c for c in before}
    for condition in patch:
        if condition.get("$patch") == "delete":
            after.pop(condition["type"], None)
        else:
            after[condition["type"]] = after.get(condition["type"], {}) | condition
    return list(after.values())
