import contextlib
import socket
import subprocess

import pytest

from tests.lab import needs, network, packages, ports


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which none of the tools is installed yet."""

    def absent(argv: list[str], **_: object) -> None:
        raise FileNotFoundError(2, "No such file or directory", argv[0])

    monkeypatch.setattr(subprocess, "run", absent)


@pytest.mark.usefixtures("bare")
def test_a_machine_without_any_tool_is_described_instead_of_crashed_upon() -> None:
    """The first run installs them only after it has looked."""
    assert {"root", "packages", "no other kubelet"} <= {need.what for need in needs.look()}


@pytest.mark.usefixtures("bare")
def test_nothing_of_a_lab_is_left_in_a_machine_without_iptables() -> None:
    """`down` works there too."""
    assert network.chains() == []


def test_a_package_is_there_when_its_program_is_found_elsewhere() -> None:
    """A machine may have its Node from somebody else than Debian."""
    assert packages.missing({"some-shell": "/nowhere/sh", "nonsense": "/nowhere/no-such-program"}) == ["nonsense"]


@pytest.mark.usefixtures("bare")
def test_a_taken_port_is_named_without_the_tool_that_knows_by_whom() -> None:
    """The number is what a person needs first."""
    with socket.socket() as other:
        with contextlib.suppress(OSError):
            other.bind((ports.LOOPBACK, ports.NATS_MONITOR))
        assert f"{ports.NATS_MONITOR} (NATS monitor) by another process" in ports.taken(kubelets=False)
