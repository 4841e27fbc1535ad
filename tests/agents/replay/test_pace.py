"""What replay ratio and steps per update allow."""

from agents.replay.pace import due


def test_what_may_be_taken_is_what_was_earned_less_what_was_taken():
    assert due(10, 0) == 10 and due(10, 12) == -2
    assert due(30, 54, first=3, ratio=2.0) == 0
    assert due(2, 0, first=3, ratio=2.0) == -2, "before the first it is negative"
    assert due(11, 2, first=6, cost=1.5) >= 1 > due(11, 3, first=6, cost=1.5)


def test_a_cost_is_a_divisor_so_that_rounding_delays_no_update():
    assert 49 * (1 / 49) < 1 <= due(49, 0, cost=49)
    assert due(1, 9, cost=0.1) >= 1 > due(1, 10, cost=0.1)
