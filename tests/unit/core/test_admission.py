from sarit.core.admission import Admission


def test_refusals_are_reported_once_until_a_tenth_is_free():
    door = Admission(20)
    assert door.admits(19)
    assert not door.admits(20)
    assert [door.should_report() for _ in range(3)] == [True, False, False]
    assert door.admits(19)  # one left, the next comes: that is no news
    assert not door.admits(20)
    assert not door.should_report()
    assert door.admits(17)
    assert not door.admits(20)
    assert door.should_report()
    assert repr(door) == "<Admission of 20>"
