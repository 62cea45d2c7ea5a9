"""Places by host: of too many the oldest of the host with most gives way."""

from sarit.core.places_by_host import PlacesByHost


def test_oldest_of_the_host_with_most_gives_way():
    places: PlacesByHost[str] = PlacesByHost()
    assert places.pop_oldest() is None
    for host, holder in (("a", "a1"), ("b", "b1"), ("b", "b2"), ("b", "b3"), ("a", "a2")):
        places.enter(host, holder)
    assert places.pop_oldest() == ("b", "b1")
    places.leave("b", "b2")
    places.leave("b", "b2")
    places.leave("c", "unknown")
    assert len(places) == 3
    assert places.pop_oldest() == ("a", "a1")
    assert (places.count("a"), places.count("b"), places.count("c")) == (1, 1, 0)
    assert (places.pop_oldest_of("c"), places.pop_oldest_of("b")) == (None, "b3")
    assert places.pop_oldest() == ("a", "a2")
    assert (len(places), places.pop_oldest()) == (0, None)


def test_addresses_of_one_ipv6_network_are_one_host():
    places: PlacesByHost[int] = PlacesByHost()
    places.enter("10.0.0.1", 0)
    for number in range(3):
        places.enter(f"2001:db8::{number}", number + 1)
    assert places.pop_oldest() == ("2001:db8::/64", 1)
