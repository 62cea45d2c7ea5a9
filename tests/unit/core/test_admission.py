from sarit.core.admission import Admission


def test_refusals_are_reported_once_until_a_tenth_is_free():
    admission = Admission(20)
    assert admission.admits(19)
    assert not admission.admits(20)
    assert [admission.should_report() for _ in range(3)] == [True, False, False]
    assert admission.admits(19)  # one left and the next came: nothing is logged
    assert not admission.admits(20)
    assert not admission.should_report()
    assert admission.admits(17)
    assert not admission.admits(20)
    assert admission.should_report()
    assert repr(admission) == "<Admission of 20>"
