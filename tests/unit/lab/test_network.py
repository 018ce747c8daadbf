from tests.lab.network import cleaning

SAVED = """
:PREROUTING ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
:DOCKER - [0:0]
:KUBE-SERVICES - [0:0]
:KUBE-SVC-ABC - [0:0]
:CNI-0123 - [0:0]
-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER
-A POSTROUTING -s 10.144.0.9/32 -m comment --comment "name: \\"lab\\"" -j CNI-0123
-A FORWARD -s 10.144.0.0/16 -m comment --comment lockstep-lab -j ACCEPT
-A KUBE-SERVICES -d 10.145.0.1/32 -p tcp -j KUBE-SVC-ABC
-A DOCKER -i docker0 -j RETURN
"""


def test_the_labs_chains_and_the_rules_that_lead_there_go_and_nothing_else() -> None:
    """A chain goes when no rule leads to it any more: first they are emptied, then unlinked, then deleted."""
    assert cleaning("nat", SAVED.strip().splitlines()).splitlines() == [
        "*nat",
        ":KUBE-SERVICES - [0:0]",
        ":KUBE-SVC-ABC - [0:0]",
        ":CNI-0123 - [0:0]",
        '-D PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES',
        '-D POSTROUTING -s 10.144.0.9/32 -m comment --comment "name: \\"lab\\"" -j CNI-0123',
        "-D FORWARD -s 10.144.0.0/16 -m comment --comment lockstep-lab -j ACCEPT",
        "-X KUBE-SERVICES",
        "-X KUBE-SVC-ABC",
        "-X CNI-0123",
        "COMMIT",
    ]


def test_a_table_without_the_lab_is_left_alone() -> None:
    """No transaction at all: another program may be writing."""
    assert not cleaning("nat", [":PREROUTING ACCEPT [0:0]", ":DOCKER - [0:0]", "-A PREROUTING -j DOCKER"])
