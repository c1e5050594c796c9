"""200 random states saved by W ranks and restored strictly by W': each comes back equal, or an error names what is not.

A state is a random tree of kinds of leaves. The leaves know what every rank saves and what every rank must get back, so the
judge does not ask the code under test. Seeds are fixed; a failure names its seed.
"""

import importlib.util
import random
import warnings
from dataclasses import dataclass

import numpy as np
import pytest

import rankguard
from rankguard import PerRank, Shard

CASES = 200
TORCH = importlib.util.find_spec("torch") is not None

NUMPY_TYPES = ["bool", "int8", "uint16", "float16", "float32", "int64", "float64", "complex64"]
TORCH_TYPES = ["bool", "int8", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float16", "float32", "int64"]
PLAIN = [
    None,
    True,
    7,
    -(1 << 70),
    0.1,
    float("nan"),
    -0.0,
    "text",
    b"\x00\xff",
    [1, [2.5]],
    (1, ("a",)),
    {3: "x", "y": ()},
    {},
]


def random_bytes(dice, dtype, count):
    size = {"complex64": 8, "float64": 8, "int64": 8, "float32": 4}.get(dtype) or (
        2 if dtype in ("uint16", "float16", "bfloat16") else 1
    )
    return bytes(dice.randrange(2) if dtype == "bool" else dice.randrange(256) for _ in range(size * count))


def array_of(library, dtype, shape, data, layout="plain"):
    """An array with these bytes; by its layout it is contiguous, transposed or strided."""
    array = np.frombuffer(bytearray(data), dtype=np.uint8) if data else np.empty(0, np.uint8)
    if library == "numpy":
        array = array.view(dtype).reshape(shape)
        if layout == "transposed":
            return np.array(array, order="F")
        if layout == "strided" and shape:
            wide = np.zeros((*shape[:-1], 2 * shape[-1]), dtype=dtype)
            wide[..., ::2] = array
            return wide[..., ::2]
        return array
    import torch

    flat = torch.from_numpy(array.copy()).view(getattr(torch, dtype)) if data else torch.empty(0, dtype=getattr(torch, dtype))
    tensor = flat.reshape(shape)
    if layout == "transposed":
        return tensor.t().contiguous().t() if len(shape) == 2 else tensor
    if layout == "strided" and shape:
        wide = torch.zeros((*shape[:-1], 2 * shape[-1]), dtype=tensor.dtype)
        wide[..., ::2] = tensor
        return wide[..., ::2]
    return tensor


def bytes_of(array):
    if isinstance(array, Shard):
        array = array.array
    if isinstance(array, np.ndarray):
        return array.tobytes()
    import torch

    local = array.to_local() if hasattr(array, "to_local") else array
    copy = torch.clone(local.detach(), memory_format=torch.contiguous_format)
    return bytes(copy.reshape(-1).view(torch.uint8).numpy())


@dataclass
class Tensor:
    """One tensor on all ranks: ``contents`` holds its bytes by rank, one entry where all have the same."""

    library: str
    dtype: str
    shape: tuple
    contents: list
    only: int = -1

    def bytes_on(self, rank):
        return self.contents[rank % len(self.contents)]

    def differs(self):
        return len(set(self.contents)) > 1

    def make(self, rank, world, data=None, layout="plain"):
        return array_of(self.library, self.dtype, self.shape, self.bytes_on(rank) if data is None else data, layout)


@dataclass
class Rows(Tensor):
    """A tensor of which each rank holds some rows, by ``Shard`` or as a DTensor."""

    dtensor: bool = False

    def rows(self, rank, world):
        each = -(-self.shape[0] // world)  # As DTensor deals rows: all but the last ranks have as many.
        return min(rank * each, self.shape[0]), min((rank + 1) * each, self.shape[0])

    def part(self, rank, world):
        first, end = self.rows(rank, world)
        row = len(self.contents[0]) // self.shape[0]
        return self.contents[0][first * row : end * row]

    def make(self, rank, world, data=None, layout="plain"):
        first, end = self.rows(rank, world)
        shape = (end - first, *self.shape[1:])
        part = self.part(rank, world)
        local = array_of(self.library, self.dtype, shape, part if data is None else data[: len(part)], layout)
        if not self.dtensor:
            return Shard(local, self.shape, (first, *(0 for _ in self.shape[1:])))
        import torch.distributed.tensor as placed
        from torch.distributed.device_mesh import init_device_mesh

        stride = tuple(int(np.prod(self.shape[at + 1 :])) for at in range(len(self.shape)))
        mesh = init_device_mesh("cpu", (world,))
        return placed.DTensor.from_local(
            local, mesh, [placed.Shard(0)], run_check=False, shape=torch_size(self.shape), stride=stride
        )


def torch_size(shape):
    import torch

    return torch.Size(shape)


@dataclass
class Tied:
    """The array of another leaf."""

    target: Tensor


@dataclass
class Plain:
    """Plain values by rank, one entry where all have the same."""

    values: list

    def on(self, rank):
        return self.values[rank % len(self.values)]


@dataclass
class Own:
    """A value of each rank alone."""

    values: list


class Case:
    """A random tree of leaves and two world sizes."""

    def __init__(self, seed, torch):
        self.dice = dice = random.Random(seed)
        self.saves, self.loads = dice.randint(1, 5), dice.randint(1, 5)
        self.torch, self.tensors = torch, []
        self.distributed = torch and seed % 4 == 0
        self.tree = {f"k{at}": self.node(2) for at in range(dice.randint(2, 5))}

    def node(self, depth):
        dice = self.dice
        kind = dice.choice(["leaf"] * 4 + ["dict", "list", "tuple"] * (depth > 0))
        if kind == "leaf":
            return self.leaf()
        items = [self.node(depth - 1) for _ in range(dice.randint(0, 3))]
        if kind == "dict":
            return {dice.choice(["a", "b", 0, 1]) if dice.random() < 0.5 else f"n{at}": item for at, item in enumerate(items)}
        return items if kind == "list" else tuple(items)

    def leaf(self):
        dice = self.dice
        kind = dice.choice(["same"] * 5 + ["rows"] * 3 + ["tied", "plain", "plain", "own", "differ", "plain-differ", "only"])
        if kind in ("plain", "plain-differ"):
            count = self.saves if kind == "plain-differ" else 1
            return Plain([dice.choice(PLAIN) for _ in range(count)])
        if kind == "own":
            return Own([dice.choice(PLAIN) for _ in range(self.saves)])
        if kind == "tied" and self.tensors:
            return Tied(dice.choice(self.tensors))
        return self.tensor(kind)

    def tensor(self, kind):
        dice = self.dice
        library = dice.choice(["numpy", "torch"]) if self.torch else "numpy"
        dtype = dice.choice(TORCH_TYPES if library == "torch" else NUMPY_TYPES)
        shape = dice.choice([(), (0,), (5,), (3, 4), (0, 3), (2, 3, 2), (700,)])
        if kind == "rows":
            shape = dice.choice([(1,), (4,), (7, 3), (2, 5, 2)])
        count = self.saves if kind == "differ" else 1
        contents = [random_bytes(dice, dtype, int(np.prod(shape))) for _ in range(count)]
        if kind == "rows":
            return Rows(library, dtype, shape, contents, dtensor=self.distributed and library == "torch")
        only = dice.randrange(self.saves) if kind == "only" else -1
        tensor = Tensor(library, dtype, shape, contents, only)
        if kind == "same":
            self.tensors.append(tensor)
        return tensor

    def state(self, rank, world, live):
        """What a rank saves, or the state that it restores into."""
        made, dice = {}, random.Random(rank)

        def build(node):
            if isinstance(node, dict):
                return {key: build(item) for key, item in node.items() if present(item)}
            if isinstance(node, (list, tuple)):
                return type(node)(build(item) for item in node if present(item))
            if isinstance(node, Plain):
                return "stale" if live else node.on(rank)
            if isinstance(node, Own):
                return PerRank("stale" if live else node.values[rank])
            target = node.target if isinstance(node, Tied) else node
            if isinstance(node, Tied) and id(target) in made:
                return made[id(target)]
            zeros = bytes(len(target.contents[0])) if live else None
            layout = dice.choice(["plain", "transposed", "strided"])
            made[id(target)] = target.make(rank, world, zeros, layout)
            return made[id(target)]

        def present(node):
            gone = isinstance(node, Tensor) and node.only not in (-1, rank)
            # At another world size a rank must take what any rank has saved.
            return not gone or (live and world != self.saves)

        return build(self.tree)

    def check(self, got, rank):
        """Places of the state at which something else came back than was saved."""
        own, wrong = self.loads == self.saves, []

        def walk(node, value, path):
            if isinstance(node, (dict, list, tuple)):
                items = node.items() if isinstance(node, dict) else enumerate(node)
                items = [(key, item) for key, item in items if here(item)]
                for at, (key, item) in enumerate(items):
                    key = key if isinstance(node, dict) else at
                    walk(item, value[key], (*path, key))
                return
            name = ".".join(map(str, path))
            if isinstance(node, Plain):
                same = repr(value) == repr(node.on(rank if own else 0))
            elif isinstance(node, Own):
                same = repr(value.value) == repr(node.values[rank] if own else "stale")
            else:
                node = node.target if isinstance(node, Tied) else node
                want = node.part(rank, self.loads) if isinstance(node, Rows) else node.bytes_on(rank if own else 0)
                same = bytes_of(value) == want
            if not same:
                wrong.append(name)

        def here(node):
            return not (isinstance(node, Tensor) and node.only not in (-1, rank) and own)

        walk(self.tree, got, ())
        return wrong

    def leaves(self, node=None, path=()):
        node = self.tree if node is None else node
        if isinstance(node, (dict, list, tuple)):
            for key, item in node.items() if isinstance(node, dict) else enumerate(node):
                yield from self.leaves(item, (*path, key))
        else:
            yield ".".join(map(str, path)), node

    def sequences(self, node=None, path=()):
        """Names of lists and tuples, and of what holds them."""
        node = self.tree if node is None else node
        if isinstance(node, (dict, list, tuple)):
            if path:
                yield ".".join(map(str, path))
            for key, item in node.items() if isinstance(node, dict) else enumerate(node):
                yield from self.sequences(item, (*path, key))

    def refusable(self):
        """Names of leaves that ranks of another world size must refuse."""
        if self.saves == self.loads:
            return set()
        return {name for name, leaf in self.leaves() if type(leaf) is Tensor and leaf.differs()}

    def shifts(self):
        """Names in sequences shift where an entry before them is on one rank only."""
        return any(isinstance(leaf, Tensor) and leaf.only >= 0 for _, leaf in self.leaves()) and self.saves > 1


class Ranks:
    """Sessions one after the other, each as the rank that it stands for."""

    def __init__(self, case, folder):
        self.case, self.folder = case, folder

    def connect(self, rank, world, generation):
        return rankguard.connect(
            self.folder, job="test", rank=rank, world_size=world, generation=generation, commit_within_s=20
        )

    def as_rank(self, rank, world, work):
        if not self.case.distributed:
            return work()
        import torch.distributed
        from torch.testing._internal.distributed.fake_pg import FakeStore

        torch.distributed.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world)
        try:
            return work()
        finally:
            torch.distributed.destroy_process_group()

    def save(self):
        world = self.case.saves
        sessions = [self.connect(rank, world, 1) for rank in range(world)]
        for rank, session in enumerate(sessions):
            self.as_rank(rank, world, lambda r=rank, s=session: s.checkpoint(self.case.state(r, world, False), step=1))
        for session in sessions:
            session.done()

    def restore(self, rank):
        """What became of one rank: its state and what was reported, or the error and the state as it was left."""
        world = self.case.loads
        session = self.connect(rank, world, 2)

        def work():
            live = self.case.state(rank, world, True)
            try:
                return live, session.restore(live), None, bytes_by_leaf(live)
            except (rankguard.RankguardError, ValueError, TypeError) as problem:
                return live, None, str(problem), bytes_by_leaf(live)

        try:
            return self.as_rank(rank, world, work)
        finally:
            session.done()


def bytes_by_leaf(state):
    from rankguard._tree import Flat

    return {leaf.name: bytes_of(leaf.value) for leaf in Flat(state).leaves}


def run_case(seed, folder, torch):
    """Gives ``equal`` or ``refused``; fails for anything silent."""
    case = Case(seed, torch)
    ranks = Ranks(case, folder)
    ranks.save()
    outcome = "equal"
    for rank in range(case.loads):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            live, report, problem, data = ranks.restore(rank)
        where = f"seed {seed}, {case.saves} to {case.loads} ranks, rank {rank}"
        if problem is not None:
            names = {name for name, _ in case.leaves()} | set(data) | set(case.sequences())
            assert any(name in problem for name in names), f"{where}: no name in: {problem}"
            expected = case.refusable()
            assert expected or (case.shifts() and case.saves != case.loads), f"{where}: refused without need: {problem}"
            assert not any(map(any, data.values())), f"{where}: changed before it was refused"
            outcome = "refused"
            continue
        wrong = case.check(live, rank)
        assert not wrong, f"{where}: {wrong} came back different in silence"
        assert not case.refusable(), f"{where}: {case.refusable()} were to be refused"
        differing = {name for name, leaf in case.leaves() if isinstance(leaf, Plain) and len(set(map(repr, leaf.values))) > 1}
        if case.saves != case.loads and not case.shifts():
            named = " ".join(report.differing)
            assert all(any(name.startswith(told) for told in report.differing) for name in differing), f"{where}: {named}"
            told = [str(each.message) for each in caught if "different values" in str(each.message)]
            assert bool(differing) == bool(told), f"{where}: {differing} and {told}"
    return outcome


@pytest.mark.parametrize("part", range(4))
def test_numpy_states_come_back_equal_or_are_refused_by_name(tmp_path, part):
    outcomes = [run_case(seed, tmp_path / str(seed), torch=False) for seed in range(part, CASES // 2, 4)]
    assert outcomes.count("equal") > len(outcomes) // 3 and outcomes.count("refused") > 0


@pytest.mark.torch
@pytest.mark.parametrize("part", range(4))
def test_torch_states_come_back_equal_or_are_refused_by_name(tmp_path, part):
    seeds = range(CASES // 2 + part, CASES, 4)
    outcomes = [run_case(seed, tmp_path / str(seed), torch=True) for seed in seeds]
    assert outcomes.count("equal") > len(outcomes) // 3 and outcomes.count("refused") > 0
