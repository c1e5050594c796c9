"""The order of samples: a bijection with random access, equal to a reference that builds whole tables, and fixed for ever."""

import collections
import hashlib
import math
import random
import subprocess
import sys
import tracemalloc

import pytest

from rankguard import _permutation
from rankguard._permutation import FeistelOrder, SequentialOrder, make

SIZES = [*range(1, 70), 127, 128, 129, 255, 256, 257, 1000, 1023, 1024, 1025, 4096, 4097, 65_535, 65_536, 65_537]


def table(samples: int, seed: int, epoch: int) -> "list[int]":
    """The whole order from the documentation: permutes the domain round by round, then follows each sample's cycle."""
    half = 4
    while 4**half < samples:
        half += 1
    side = 2**half
    words = hashlib.sha512(b"feistel-splitmix64/1 seed=%d epoch=%d samples=%d" % (seed, epoch, samples)).digest()
    pairs = [(left, right) for left in range(side) for right in range(side)]
    for nth in range(8):
        key = sum(byte << (8 * place) for place, byte in enumerate(words[8 * nth : 8 * nth + 8]))
        drawn = {}
        for right in range(side):
            word = (right + key) % 2**64
            word = (word ^ word // 2**30) * 0xBF58476D1CE4E5B9 % 2**64
            word = (word ^ word // 2**27) * 0x94D049BB133111EB % 2**64
            drawn[right] = (word ^ word // 2**31) % side
        pairs = [(right, left ^ drawn[right]) for left, right in pairs]
    domain = [left * side + right for left, right in pairs]
    order = []
    for place in range(samples):
        at = domain[place]
        while at >= samples:
            at = domain[at]
        order.append(at)
    return order


@pytest.mark.parametrize("samples", SIZES)
def test_it_is_a_bijection(samples):
    order = FeistelOrder(samples, seed=samples, epoch=1).indices(0, samples)
    assert sorted(order) == list(range(samples))


@pytest.mark.parametrize("samples", [1, 2, 3, 5, 16, 17, 100, 255, 256, 257, 1000, 1025, 5000])
def test_it_equals_the_reference(samples):
    for seed, epoch in ((0, 0), (0, 1), (7, 0), (2**63 - 1, 2**40)):
        assert FeistelOrder(samples, seed, epoch).indices(0, samples) == table(samples, seed, epoch)


def test_random_access_equals_iteration_in_both_directions():
    source = random.Random(1)
    for _ in range(60):
        samples = source.randint(1, 2000)
        order = FeistelOrder(samples, source.getrandbits(62), source.randrange(9))
        whole = order.indices(0, samples)
        for _ in range(20):
            start = source.randint(0, samples)
            stop = source.randint(start, samples)
            assert order.indices(start, stop) == whole[start:stop]
            position = source.randrange(samples)
            assert order.index(position) == whole[position]
            assert order.position(whole[position]) == position


@pytest.mark.parametrize("samples", [10**12, 2**62 - 57, 2**62])
def test_the_inverse_holds_for_very_many_samples(samples):
    source = random.Random(samples)
    order = FeistelOrder(samples, 3, 4)
    for _ in range(300):
        position = source.randrange(samples)
        index = order.index(position)
        assert 0 <= index < samples
        assert order.position(index) == position
    start = samples - 100
    assert order.indices(start, samples) == [order.index(position) for position in range(start, samples)]


def test_arrays_and_loops_give_the_same_order():
    """Without numpy a sampler loops; a job may have it on some machines alone."""
    program = (
        "import sys\n"
        "from rankguard._permutation import FeistelOrder\n"
        "assert 'numpy' not in sys.modules\n"
        "for samples in (100, 1000, 10**12, 2**62):\n"
        "    print(FeistelOrder(samples, 5, 6).indices(samples - 90, samples))\n"
    )
    looped = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60).stdout
    import numpy  # noqa: F401

    arrays = [FeistelOrder(samples, 5, 6).indices(samples - 90, samples) for samples in (100, 1000, 10**12, 2**62)]
    assert looped.split("\n")[:-1] == [str(order) for order in arrays]


def test_orders_of_seeds_epochs_and_sizes_have_nothing_in_common():
    """Two random orders of 10,000 agree at one place on average; 20 has a probability below 1e-18."""
    orders = [FeistelOrder(10_000, seed, epoch).indices(0, 10_000) for seed in (0, 1) for epoch in (0, 1, 2)]
    orders.append(FeistelOrder(10_001, 0, 0).indices(0, 10_000))
    for nth, order in enumerate(orders):
        for other in orders[:nth]:
            assert sum(map(int.__eq__, order, other)) < 20


@pytest.mark.parametrize("samples", [3, 4, 5])
def test_all_orders_of_few_samples_are_equally_likely(samples):
    seeds, kinds = 2400, math.factorial(samples)
    counts = collections.Counter(tuple(FeistelOrder(samples, seed, 0).indices(0, samples)) for seed in range(seeds))
    assert len(counts) == kinds
    expected = seeds / kinds
    square = sum((count - expected) ** 2 / expected for count in counts.values())
    # Mean and deviation of chi-square with so many degrees of freedom.
    assert square < kinds - 1 + 4 * math.sqrt(2 * (kinds - 1))


def test_neighbours_are_scattered():
    """Distances of adjacent positions have the mean of random pairs, a third of the range."""
    samples = 50_000
    order = FeistelOrder(samples, 11, 0).indices(0, samples)
    mean = sum(abs(order[at + 1] - order[at]) for at in range(samples - 1)) / (samples - 1)
    assert abs(mean / samples - 1 / 3) < 0.01


def test_the_order_of_version_1_is_fixed():
    """A change of these values would change the order of running jobs: make another kind instead."""
    assert FeistelOrder.KIND == _permutation.SHUFFLED == "feistel-splitmix64/1"
    assert FeistelOrder(10, 0, 0).indices(0, 10) == GOLDEN[10]
    assert FeistelOrder(1000, 7, 3).indices(500, 508) == GOLDEN[1000]
    assert FeistelOrder(10**12, 42, 1).indices(10**11, 10**11 + 4) == GOLDEN[10**12]


GOLDEN = {
    10: [3, 6, 9, 2, 8, 5, 1, 0, 4, 7],
    1000: [327, 720, 746, 413, 979, 874, 510, 81],
    10**12: [98228165309, 542991626095, 180949477194, 832756169892],
}


def test_memory_is_constant():
    samples = 10**12
    order = FeistelOrder(samples, 1, 2)
    order.indices(0, 4)
    tracemalloc.start()
    try:
        for start in range(0, samples, samples // 50):
            order.position(order.index(start))
        assert tracemalloc.get_traced_memory()[1] < 4096
    finally:
        tracemalloc.stop()


def test_sequential_order_is_that_of_the_dataset():
    order = make(_permutation.SEQUENTIAL, 9, 1, 2)
    assert isinstance(order, SequentialOrder)
    assert order.indices(2, 9) == list(range(2, 9))
    assert (order.index(3), order.position(4)) == (3, 4)


@pytest.mark.parametrize("order", [FeistelOrder(5, 0, 0), SequentialOrder(5, 0, 0)])
def test_what_is_out_of_range_is_refused(order):
    for wrong in (-1, 5, 2**70):
        with pytest.raises(IndexError, match=rf"position is {wrong}; it can be 0 to 4"):
            order.index(wrong)
        with pytest.raises(IndexError, match=rf"index is {wrong}; it can be 0 to 4"):
            order.position(wrong)
    for span in ((-1, 2), (3, 2), (0, 6)):
        with pytest.raises(IndexError, match="they can be 0 to 5"):
            order.indices(*span)
