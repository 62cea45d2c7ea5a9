"""What counts as one client."""

import pytest

from sarit.core.networks import network_of, network_of_peer


@pytest.mark.parametrize(
    ("host", "network"),
    [
        ("10.1.2.3", "10.1.2.3"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:DB8:1:2::9", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::/64"),
        ("2001:db8:1:2:ffff::1", "2001:db8:1:2::/64"),
        ("[2001:db8::1]", "2001:db8::/64"),
        ("no:address", "no:address"),
        ("x" * 1000, "x" * 64),
        ("?", "?"),
        ("", ""),
    ],
)
def test_addresses_of_one_customer_are_one_network(host, network):
    assert network_of(host) == network
    assert network_of_peer(f"{host}:9090") == network
