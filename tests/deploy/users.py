"""`deploy/nats/users.conf` and the chart's `files/nats-users.json`, from the table of permissions."""

import json
from typing import Any

import msgspec

from lockstep.contracts.permissions import USER, WRITES, Permissions, permissions

OTHERS = {"standalone": "standalone", "reader": "reader", "ops": "requester", "admin": "admin"}
"""The blocks beside those of services, and their role."""
WORDS = {
    "standalone": "All services in one process: `lockstep standalone`.",
    "reader": "May read facts and events, live and from the streams, and nothing else.",
    "ops": "The same, and may ask under its own name. One for each requester: only the name in the first line differs.",
    "admin": "Looks after what could not be handled: `lockstep dead` (and `lockstep events`).",
}
HEAD = """\
# Users of a NATS server that Lockstep shares with people and tools: who may publish and read what.
#
#   include users.conf              # in the server's own configuration, beside `jetstream { … }`
#
# Beside this file lies passwords.conf, readable by the server alone, with a line for each user below:
#
#   drain_password: "$2a$11$…"      # bcrypt, as `nats server passwd` makes it
#
# The user in a request's subject is the one that may publish there: NATS vouches for who asks. What somebody may ask
# for is decided by Lockstep (settings `requests.allow`). Give each person or tool a user of its own, as `ops` is one.
#
# Made by `make charts` from libs/lockstep/contracts/permissions.py.

include passwords.conf

authorization {
"""


def users_json() -> dict[str, Any]:
    """Per service and per role what it may publish and subscribe to; `{user}` stands for a requester's name."""
    found: dict[str, Any] = msgspec.to_builtins(permissions())
    return found


def users_conf() -> str:
    """The same in NATS' own words, with a user for each service and some people."""
    table = permissions()
    blocks = {service: (f"The service {service}.", table[service]) for service in WRITES}
    blocks |= {name: (WORDS[name], _named(table[role], name)) for name, role in OTHERS.items()}
    text = HEAD + "".join(_block(name, words, may) for name, (words, may) in blocks.items())
    users = {name: name for name in WRITES} | {
        "lockstep": "standalone",
        "guest": "reader",
        "ops": "ops",
        "admin": "admin",
    }
    lines = [
        f"    {{user: {user}, password: ${_variable(user)}_password, permissions: ${_variable(block).upper()}}}\n"
        for user, block in users.items()
    ]
    return f"{text}  users: [\n{''.join(lines)}  ]\n}}\n"


def _block(name: str, words: str, may: Permissions) -> str:
    publish = "".join(f"      {json.dumps(subject)}\n" for subject in may.publish)
    subscribe = json.dumps(may.subscribe)
    title = _variable(name).upper()
    return f"  # {words}\n  {title} = {{\n    publish: [\n{publish}    ]\n    subscribe: {subscribe}\n  }}\n\n"


def _variable(user: str) -> str:
    return user.replace("-", "_")


def _named(may: Permissions, user: str) -> Permissions:
    return msgspec.structs.replace(may, publish=[subject.replace(USER, user) for subject in may.publish])
