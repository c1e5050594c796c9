"""What the tests share. Without torch, its tests say loudly that they did not run."""

import importlib.util
import pathlib
import signal
import sys
import warnings

import pytest

# `python -m pytest` in the checkout puts that on the path, where transformers takes our folder `datasets` for the library.
CHECKOUT = str(pathlib.Path(__file__).resolve().parents[2])
sys.path[:] = [folder for folder in sys.path if folder not in ("", CHECKOUT)]

import acceptance  # noqa: E402 (the path has to be put right first)

TORCH = importlib.util.find_spec("torch") is not None


def pytest_collection_modifyitems(config: pytest.Config, items: "list[pytest.Item]") -> None:
    for item in items:
        if item.get_closest_marker("acceptance") and item.name in acceptance.CI_ROWS:
            item.add_marker(pytest.mark.ci_row)
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
