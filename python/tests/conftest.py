"""What the tests share. Without torch, its tests say loudly that they did not run."""

import importlib.util
import pathlib
import signal
import sys
import warnings

import pytest
from xdist.scheduler import LoadScopeScheduling

import acceptance

# `python -m pytest` in the checkout puts that on the path, where transformers takes our folder `datasets` for the library.
CHECKOUT = str(pathlib.Path(__file__).resolve().parents[2])
sys.path[:] = [folder for folder in sys.path if folder not in ("", CHECKOUT)]

TORCH = importlib.util.find_spec("torch") is not None
_LONGEST_FIRST = [
    "test_acceptance",
    "test_torchrun_frameworks",
    "test_torch_jobs",
    "test_elastic",
    "test_wheel",
    "test_trainer_guide",
    "test_launch",
]


#: How many frameworks of the acceptance table run at a time. Their ranks import torch, which takes all of two cores; most of
#: the other tests wait.
_ACCEPTANCE_WORKERS = 2


class FrameworkScheduling(LoadScopeScheduling):
    """Hands out files of tests; of the acceptance table half of the frameworks, all rows of which share one undisturbed run."""

    def _split_scope(self, nodeid: str) -> str:
        file, _, test = nodeid.partition("::")
        stem = pathlib.Path(file).stem
        if stem == "test_acceptance":
            framework = test.partition("[")[2].rstrip("]")
            at = [known.name for known in acceptance.FRAMEWORKS].index(framework)
            return f"acceptance-{at % _ACCEPTANCE_WORKERS}"
        # These tests share nothing, and each is long.
        return nodeid if stem in ("test_torch_jobs", "test_torchrun_frameworks") else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> LoadScopeScheduling:
    # Scopes are handed out in the order of collection.
    config.option.loadscopereorder = False
    return FrameworkScheduling(config, log)


def _runs_at_each_landing(item: pytest.Item) -> bool:
    return item.callspec.params["framework"].name in acceptance.EACH_LANDING[item.originalname]


# Before `-m` chooses among the marks.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: "list[pytest.Item]") -> None:
    # The longest come first, so that no process is left alone with one at the end.
    rank = {stem: at for at, stem in enumerate(_LONGEST_FIRST)}
    items.sort(key=lambda item: rank.get(item.path.stem, len(rank)))
    for item in items:
        if item.path.stem == "test_acceptance" and not _runs_at_each_landing(item):
            item.add_marker("long")
    if TORCH:
        return
    warnings.warn(
        "SKIPPED: torch is not installed, so nothing of torch, DCP, DDP, FSDP2 and the frameworks was tested", stacklevel=1
    )
    skip = pytest.mark.skip(reason="torch is not installed (python/tests/torch_env.sh makes an environment)")
    for item in items:
        if "torch" in item.keywords:
            item.add_marker(skip)


@pytest.fixture
def session(tmp_path):
    import rankguard

    session = rankguard.connect(tmp_path / "store", job="test", rank=0, world_size=1)
    yield session
    session.done()


def pytest_configure(config):
    # A shell that starts the tests in the background makes them ignore SIGINT, and programs under test would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
