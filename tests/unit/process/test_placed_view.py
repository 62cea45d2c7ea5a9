"""What the console shows of containers on stores of other processes."""

from sarit.admin.reasons import Reason
from sarit.coordination.container_map import ContainerMap, StoreAddress
from sarit.process.observation.console_view import HIDDEN, hidden_in
from sarit.process.observation.placed_view import Placement, fixed, mapped, states_by_reasons, summary


def test_containers_of_processes_are_placed_by_number() -> None:
    found = fixed(5, [("127.0.0.1", 1), ("127.0.0.1", 2)])
    containers, stores, reasons = summary(found, frozenset(found.stores), {})
    assert [one.store for one in containers] == ["store 0", "store 1", "store 0", "store 1", "store 0"]
    assert [(one.name, one.containers, one.state) for one in stores] == [("store 0", 3, "ok"), ("store 1", 2, "ok")]
    assert reasons == []


def test_a_store_that_does_not_answer_is_a_reason() -> None:
    found = fixed(2, [("127.0.0.1", 1), ("127.0.0.1", 2)])
    containers, stores, reasons = summary(found, frozenset({"store 0"}), {1: "serving"})
    assert [one.state for one in containers] == ["assigned", "away"]  # which do not count as serving
    assert [one.state for one in stores] == ["ok", "away"]
    assert reasons == ["store 1 at 127.0.0.1:2 does not answer"]


def test_moves_and_containers_without_a_store_are_shown() -> None:
    stores = {"a": StoreAddress("10.0.0.1", 1, "m", 1, leaving=True), "b": StoreAddress("10.0.0.2", 2, "n", 2)}
    record = ContainerMap(7, stores, ("b", "b", None), {0: "a"})
    containers, shown, reasons = summary(mapped(record), frozenset(stores), {1: "log-away"})
    assert [(one.state, one.store, one.moving_to) for one in containers] == [
        ("moving", "a", "b"), ("log-away", "b", ""), ("unassigned", "", ""),
    ]  # fmt: skip
    assert [(one.name, one.containers, one.state) for one in shown] == [("a", 1, "leaving"), ("b", 1, "ok")]
    assert reasons == ["no store has container 2"]


def test_a_cluster_without_a_map_says_so() -> None:
    assert summary(mapped(None), frozenset(), {}) == ([], [], ["there is no container map yet"])
    assert mapped(None) == Placement((), {})


def test_containers_of_processes_that_are_not_served_are_named_by_the_health_of_the_stores() -> None:
    found = fixed(4, [("127.0.0.1", 1), ("127.0.0.1", 2)])
    assert states_by_reasons(found, [
        Reason("log-away", "store-1, container 3", ""), Reason("starting", "controller", ""),
        Reason("damaged-pieces", "store-0, container 2", "", ready=True),
    ]) == {3: "log-away"}  # fmt: skip
    assert states_by_reasons(found, [Reason("stands-still", "store-0", "")]) == {0: "stands-still", 2: "stands-still"}
    assert states_by_reasons(found, [Reason("disk-full", "store-1, disk", "")]) == {1: "disk-full", 3: "disk-full"}


def test_secrets_of_options_are_hidden() -> None:
    assert hidden_in("storage_url", "s3://me:secret@host/b?x=1") == f"s3://{HIDDEN}@host/b?x=1"
    assert hidden_in("storage_url", "s3://bucket/prefix") == "s3://bucket/prefix"
    assert hidden_in("secret", b"x") == HIDDEN
    assert hidden_in("aws_secret_access_key", "x") == HIDDEN
    assert hidden_in("host", None) == ""
