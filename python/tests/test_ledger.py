"""The ledger of samples: intervals are merged, and every gap and overlap is named."""

import random

import pytest

from rankguard import LedgerInterval, RankguardError, SampleLedger


def ledger(*rows):
    return SampleLedger(LedgerInterval(*row) for row in rows)


def test_adjacent_steps_of_one_generation_are_one_interval():
    found = SampleLedger()
    for start in range(0, 80, 8):
        found.record(start, start + 8, generation=1, world_size=2)
    found.record(80, 84, generation=1, world_size=3)
    found.record(84, 90, generation=2, world_size=3)
    assert found.intervals == [(1, 2, 0, 80), (1, 3, 80, 84), (2, 3, 84, 90)]
    assert found.by_generation() == {1: [(0, 84)], 2: [(84, 90)]}
    assert found.problems() == [] == found.problems(90)
    assert SampleLedger.of_state(found.state()) == found


def test_gaps_and_overlaps_are_named():
    assert ledger((1, 2, 0, 8), (2, 2, 16, 24)).problems() == ["no generation consumed the places 8 to 16"]
    assert ledger((1, 2, 0, 8), (2, 2, 4, 24)).problems() == ["generations 1 and 2 both consumed the places 4 to 8"]
    assert ledger((1, 2, 0, 20), (2, 2, 4, 8)).problems() == ["generations 1 and 2 both consumed the places 4 to 8"]
    assert ledger((1, 2, 4, 8)).problems(12) == [
        "no generation consumed the places 0 to 4",
        "no generation consumed the places 8 to 12",
    ]
    assert ledger((1, 2, 0, 8)).problems(6) == ["the places 6 to 8 are beyond the end, 6"]
    assert SampleLedger().problems(3) == ["no generation consumed the places 0 to 3"]
    with pytest.raises(RankguardError, match="not exact: no generation consumed the places 8 to 16"):
        ledger((1, 2, 0, 8), (2, 2, 16, 24)).check()
    with pytest.raises(RankguardError, match="and 4 more"):
        ledger(*((1, 1, 2 * nth, 2 * nth + 1) for nth in range(10))).check()
    ledger((1, 2, 0, 8), (2, 2, 8, 24)).check(24)


def test_problems_are_those_of_a_count_of_every_place():
    """Random records against a count of each place."""
    source = random.Random(3)
    for _ in range(2000):
        found, counts = SampleLedger(), [0] * 30
        for _ in range(source.randint(0, 6)):
            start = source.randrange(30)
            stop = source.randint(start, 30)
            found.record(start, stop, generation=source.randrange(3), world_size=1)
            for place in range(start, stop):
                counts[place] += 1
        assert bool(found.problems(30)) == any(count != 1 for count in counts)
        texts = " ".join(found.problems(30))
        assert ("no generation" in texts) == (0 in counts)
        assert ("both consumed" in texts) == any(count > 1 for count in counts)
        merged = {place for spans in found.by_generation().values() for start, stop in spans for place in range(start, stop)}
        assert merged == {place for place, count in enumerate(counts) if count}


def test_wrong_records_are_refused():
    found = SampleLedger()
    with pytest.raises(ValueError, match="3 to 2: it ends before it starts"):
        found.record(3, 2, generation=0, world_size=1)
    with pytest.raises(ValueError, match="start is -1"):
        found.record(-1, 2, generation=0, world_size=1)
    with pytest.raises(ValueError, match="world_size is 0"):
        found.record(0, 2, generation=0, world_size=0)
    with pytest.raises(TypeError, match=r"stop is 2\.5"):
        found.record(0, 2.5, generation=0, world_size=1)
    for damaged in (None, 3, [[1, 2, 3]], [[1, 2, 3, "x"]], {"a": 1}):
        with pytest.raises((TypeError, ValueError)):
            SampleLedger.of_state(damaged)
