"""Places by host: of too many the oldest of the host with most gives way."""

import pytest

from sarit.core.host_crowd import HostCrowd, host_network


@pytest.mark.parametrize(
    ("host", "network"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::1", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("no:address", "no:address"),
        ("", ""),
    ],
)
def test_network_of_a_host(host, network):
    assert host_network(host) == network


def test_oldest_of_the_host_with_most_gives_way():
    crowd: HostCrowd[str] = HostCrowd()
    assert crowd.pop_oldest() is None
    for host, holder in (("a", "a1"), ("b", "b1"), ("b", "b2"), ("b", "b3"), ("a", "a2")):
        crowd.enter(host, holder)
    assert crowd.pop_oldest() == ("b", "b1")
    crowd.leave("b", "b2")
    crowd.leave("b", "b2")
    crowd.leave("c", "unknown")
    assert len(crowd) == 3
    assert crowd.pop_oldest() == ("a", "a1")
    assert {crowd.pop_oldest(), crowd.pop_oldest()} == {("a", "a2"), ("b", "b3")}
    assert (len(crowd), crowd.pop_oldest()) == (0, None)


def test_addresses_of_one_ipv6_network_are_one_host():
    crowd: HostCrowd[int] = HostCrowd()
    crowd.enter("10.0.0.1", 0)
    for number in range(3):
        crowd.enter(f"2001:db8::{number}", number + 1)
    assert crowd.pop_oldest() == ("2001:db8::/64", 1)
