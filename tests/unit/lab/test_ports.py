import ipaddress

from tests.lab import ports


def test_a_thousand_nodes_have_addresses_of_their_own_outside_the_pods_range() -> None:
    """Nodes and pods share one network; the machine's address is neither."""
    addresses = [ipaddress.IPv4Address(ports.node_address(number)) for number in range(1, 1001)]
    assert len(set(addresses)) == 1000
    assert max(addresses) < ipaddress.IPv4Address(ports.PODS_FIRST)
    assert ipaddress.IPv4Address(ports.HOST) not in addresses
    assert all(address in ipaddress.IPv4Network(ports.NETWORK) for address in addresses)


def test_service_addresses_are_outside_the_pod_network() -> None:
    """Otherwise a Service could hide a pod."""
    services = ipaddress.IPv4Network(ports.SERVICES)
    assert not services.overlaps(ipaddress.IPv4Network(ports.NETWORK))
    assert ipaddress.IPv4Address(ports.DNS_SERVICE) in services


def test_no_port_is_used_twice() -> None:
    """All of them are on this machine; the kubelets' are each on its node's address."""
    numbers = [value for name, value in vars(ports).items() if name.isupper() and isinstance(value, int)]
    assert len(numbers) == len(set(numbers))
