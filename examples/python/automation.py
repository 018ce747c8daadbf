"""Holds a worker, waits until it is drained, runs a command, releases it.

    automation.py --user ops --worker gpu-7 --id fw-2026-12-gpu-7 --reason "firmware 1.2" -- ./update.sh gpu-7

The id makes it one undertaking: after a crash the same command line goes on where it ended. If the command fails or the
worker is not drained in time, the hold stays, so that nobody gets a half-updated worker, and the exit code is not 0.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import nats
from nats.js.api import DeliverPolicy

STREAM = "LOCKSTEP_EVENTS"


class Refused(Exception):
    """Lockstep does not do it; says why."""


async def main(args: argparse.Namespace) -> int:
    """The undertaking."""
    client = await nats.connect(os.environ.get("NATS_URL", "nats://127.0.0.1:4222"), **login(args.user))
    stream, hold = client.jetstream(), args.id
    try:
        async with asyncio.timeout(args.drained_within):
            spec = {"workers": {"names": [args.worker]}, "reason": args.reason}
            outcome = await ask(stream, args, "hold", args.id, {"name": hold, "spec": spec})
        if outcome != "drained":
            print(f"{args.worker} is not drained: {outcome}; the hold {hold} stays", file=sys.stderr)
            return 1
        print(f"{args.worker} is drained", flush=True)
        if await asyncio.to_thread(subprocess.call, args.command):
            print(f"the command failed; the hold {hold} stays", file=sys.stderr)
            return 1
        await ask(stream, args, "release", f"{args.id}-done", {"hold": hold})
        print(f"{args.worker} is released", flush=True)
    except Refused as refused:
        print(f"refused: {refused}", file=sys.stderr)
        return 1
    except TimeoutError:
        print(f"{args.worker} is not drained after {args.drained_within} s; the hold {hold} stays", file=sys.stderr)
        return 1
    finally:
        await client.close()
    return 0


async def ask(stream: Any, args: argparse.Namespace, verb: str, request: str, wish: dict[str, Any]) -> str:
    """Asks for something and waits for the outcome. The same id twice is one request, and is answered alike."""
    subject = f"lockstep.request.{verb}.v1.{token(args.user)}.{token(args.cluster)}.{token(request)}"
    body = {"verb": f"{verb}.v1", "id": request, "cluster": args.cluster, **wish}
    await stream.publish(subject, json.dumps(body).encode(), headers={"Nats-Msg-Id": subject})
    answers = await stream.subscribe(
        f"lockstep.event.request.*.*.{token(args.cluster)}.{token(request)}",
        stream=STREAM,
        ordered_consumer=True,
        deliver_policy=DeliverPolicy.ALL,
    )
    async for message in answers.messages:
        answer = json.loads(message.data)
        if (answer["verb"], answer["by"]) != (verb, args.user):
            continue
        if answer["type"].startswith("request.refused"):
            raise Refused(answer["fault"])
        if answer["type"].startswith("request.done"):
            return str(answer["outcome"])
    raise Refused("NATS closed the subscription")


def token(name: str) -> str:
    """A name as one token of a subject: all but letters, digits and dashes become _ and two hex digits a byte."""
    plain = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-")
    return "".join(c if c in plain else "".join(f"_{byte:02x}" for byte in c.encode()) for c in name)


def login(user: str) -> dict[str, str]:
    """Who we are on NATS; the user must be the one in the subject of the requests."""
    if creds := os.environ.get("NATS_CREDS"):
        return {"user_credentials": creds}
    if file := os.environ.get("NATS_PASSWORD_FILE"):
        return {"user": user, "password": Path(file).read_text().strip()}
    return {}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("user", "worker", "id", "reason"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--cluster", default="main")
    parser.add_argument("--drained-within", type=float, default=24 * 3600, metavar="SECONDS")
    parser.add_argument("command", nargs="+", help="what to do while the worker is out of service")
    sys.exit(asyncio.run(main(parser.parse_args())))
