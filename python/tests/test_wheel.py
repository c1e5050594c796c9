"""The wheel as somebody installs it: its tag, what is in it, and the snippet of the README in fresh environments."""

import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

import pytest

import readme

FOLDER = pathlib.Path(__file__).resolve().parents[1]


def runs(python: str) -> bool:
    """Whether it is there and more than a stand-in of a version manager."""
    return shutil.which(python) is not None and subprocess.run([python, "-V"], capture_output=True).returncode == 0


PYTHONS = [f"python3.{minor}" for minor in range(9, 16) if runs(f"python3.{minor}")] or [sys.executable]

pytestmark = pytest.mark.skipif(
    shutil.which("cargo") is None or importlib.util.find_spec("maturin") is None, reason="cargo or maturin is not installed"
)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    out = tmp_path_factory.mktemp("wheels")
    profile = os.environ.get("RANKGUARD_WHEEL_PROFILE", "dev")
    command = [sys.executable, str(FOLDER / "build_wheel.py"), "--out", str(out), "--profile", profile]
    if "RANKGUARD_BIN" in os.environ:
        # Built with the workspace; alone it would be built anew with all its dependencies, since their features differ.
        command += ["--program", os.environ["RANKGUARD_BIN"]]
    subprocess.run(command, check=True, timeout=1800)
    (built,) = out.iterdir()
    return built


def test_one_wheel_is_for_every_python_from_3_9(wheel):
    assert re.fullmatch(r"rankguard-[0-9.]+-cp39-abi3-(many)?linux_\w+\.whl", wheel.name)
    with zipfile.ZipFile(wheel) as file:
        names = set(file.namelist())
        (about,) = (file.read(name).decode() for name in names if name.endswith("/METADATA"))
    sources = {
        f"rankguard/{path.name}" for path in (FOLDER / "rankguard").iterdir() if path.suffix in (".py", ".pyi", ".typed")
    }
    assert sources | {"rankguard/_rankguard.abi3.so"} <= names
    assert "Requires-Python: >=3.9" in about and "Requires-Dist" not in about
    with zipfile.ZipFile(wheel) as file:
        (points,) = (file.read(name).decode() for name in names if name.endswith("/entry_points.txt"))
    assert points.split() == ["[torchrun.handlers]", "rankguard=rankguard.torchrun:handler_factory"]


@pytest.mark.parametrize("python", PYTHONS, ids=lambda python: pathlib.Path(python).name)
def test_it_runs_the_snippet_of_the_readme_in_a_fresh_environment(wheel, tmp_path, python):
    subprocess.run([python, "-m", "venv", str(tmp_path / "env")], check=True, timeout=300)
    fresh = str(tmp_path / "env" / "bin" / "python")
    install = [fresh, "-m", "pip", "install", "--quiet", "--no-index", "--disable-pip-version-check", str(wheel)]
    subprocess.run(install, check=True, timeout=300)
    for steps, start in ((4, None), (6, 4)):
        program = readme.program(tmp_path / "store", steps, start)
        subprocess.run([fresh, "-c", program], check=True, cwd=tmp_path, timeout=60)


def test_it_brings_the_program_and_its_demo(wheel, tmp_path):
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "env")], check=True, timeout=300)
    scripts = tmp_path / "env" / "bin"
    install = [scripts / "python", "-m", "pip", "install", "--quiet", "--no-index", "--disable-pip-version-check", wheel]
    subprocess.run(install, check=True, timeout=300)
    version = subprocess.run([scripts / "rankguard", "--version"], check=True, capture_output=True, text=True, timeout=60)
    assert version.stdout.startswith("rankguard ")
    # From the folder of a newcomer: no checkout, and no program but the installed one on the path.
    home = tmp_path / "home"
    home.mkdir()
    env = {"PATH": f"{scripts}:/usr/bin:/bin", "HOME": str(home)}
    shown = subprocess.run(
        ["rankguard", "demo", "--format", "json"], cwd=home, env=env, capture_output=True, text=True, timeout=240
    )
    assert shown.returncode == 0, shown.stderr[-4_000:]
    facts = json.loads(shown.stdout)
    assert facts["parameters_identical"] is True and facts["ledger_exact"] is True, facts
    assert (home / "rankguard-demo" / "report.html").exists(), shown.stderr[-4_000:]
