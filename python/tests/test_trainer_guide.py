"""The trainer guide as its readers use it: every script runs through the real program and goes on, every command is taken, and
every test that a page names is there."""

from __future__ import annotations

import functools
import importlib.util
import pathlib
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from typing import Optional

import pytest

from cluster import ROOT, Cluster, clean, committed, program

pytestmark = pytest.mark.skipif(program() is None, reason="no rankguard program is built (cargo build -p rankguard)")

GUIDE = ROOT / "docs" / "trainer-guide.md"
PAGES = [GUIDE, *sorted((ROOT / "docs" / "trainers").glob("*.md"))]

#: Module that each script wants, and the names under which the pages save and start it.
SCRIPTS = {
    "trainer-guide.md": [("train.py", "numpy", "train")],
    "ddp.md": [("ddp.py", "torch", "ddp")],
    "fsdp2.md": [("fsdp2.py", "torch", "fsdp2")],
    "dcp.md": [("dcp_job.py", "torch", "dcp")],
    "lightning.md": [("lightning_job.py", "lightning", "lightning")],
    "transformers.md": [("transformers_job.py", "transformers", "hf")],
    "exact-data.md": [("elastic.py", "torch", "elastic")],
    "accelerate.md": [("accelerate_job.py", "accelerate", "accelerate")],
    "jax-numpy.md": [("jax_job.py", "jax", "jax"), ("numpy_job.py", "numpy", "numpy")],
    "stock-script.md": [("stock.py", "torch", "stock")],
}
ALL_SCRIPTS = [(page, *script) for page, scripts in SCRIPTS.items() for script in scripts]


def blocks(page: pathlib.Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)


def commands(page: pathlib.Path) -> list[list[str]]:
    """The commands of a page, split as a shell does."""
    lines = [line for block in blocks(page, "sh") for line in block.splitlines() if line.strip()]
    return [shlex.split(line, comments=True) for line in lines]


def script_of(page: str, name: str) -> str:
    index = [script for script, _, _ in SCRIPTS[page]].index(name)
    (path,) = (path for path in PAGES if path.name == page)
    return blocks(path, "python")[index]


def is_accepted(command: list[str]) -> subprocess.CompletedProcess:
    """Whether the program takes the options and values of a command; it prints its help and does nothing."""
    ours = command[1 : command.index("--")] if "--" in command else command[1:]
    return subprocess.run([program(), *ours, "--help"], capture_output=True, text=True, env=clean(), timeout=60)


def test_every_block_is_known() -> None:
    """Each page has the scripts of the table above and no code that no test looks at."""
    assert {page.name for page in PAGES} == set(SCRIPTS)
    for page in PAGES:
        assert len(blocks(page, "python")) == len(SCRIPTS[page.name]), page.name
        fences = re.findall(r"^```(\S*)$", page.read_text(), re.MULTILINE)
        assert set(fences) <= {"python", "sh", ""}, page.name
        assert fences.count("") == len(fences) / 2, page.name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_program_takes_every_command(page: pathlib.Path) -> None:
    found = commands(page)
    assert found
    for command in found:
        assert command[0] == "rankguard", command
        taken = is_accepted(command)
        assert taken.returncode == 0, f"{shlex.join(command)}\n{taken.stderr}"
        if "--" in command and command[1] == "run":
            started = command[command.index("--") + 1 :]
            assert started[0] == "python" and started[1] in {script for script, _, _ in SCRIPTS[page.name]}, command


@pytest.mark.parametrize(
    "words", ["run --no-such-option -- python train.py", "run --nodes x -- python train.py", "checkpoint exprot 1"]
)
def test_a_command_that_the_program_does_not_take_is_found(words: str) -> None:
    taken = is_accepted(["rankguard", *shlex.split(words)])
    assert taken.returncode == 64, taken.stdout


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_tests_that_are_named_are_there(page: pathlib.Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    files = set(re.findall(r"`((?:[\w.]+/)*\w+\.(?:py|rs))`", text))
    assert files
    tests = ROOT / "python" / "tests"
    sources = [path for file in files for path in (ROOT / file, tests / file) if path.exists()]
    missing = [file for file in files if not any((base / file).exists() for base in (ROOT, tests, ROOT / "docs"))]
    own_scripts = {script for script, _, _ in SCRIPTS[page.name]}
    assert set(missing) <= own_scripts, f"{page.name} names {missing}"
    known = "\n".join(path.read_text() for path in sources)
    named = set(re.findall(r"\b(test_\w+)(?:\[[^\]]*\])?(?!\.py)\b", text)) - {file.removesuffix(".py") for file in files}
    named |= set(re.findall(r"`[\w./]+\.rs`,? (\w+_\w+_\w+)", text))
    for name in named:
        assert re.search(rf"\b(def|fn) {name}\b", known), f"{page.name} names {name}, which is in none of {sorted(files)}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: pathlib.Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name}: {target}"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("guide"), slots=2)
    try:
        yield cluster
    finally:
        cluster.close()


def start(cluster: Cluster, command: list[str], name: str, *options: str, ranks: int = 0, resume: Optional[int] = None) -> str:
    """Runs a command of a page to its end as job `name`, in the folder of the cluster; its output."""
    words = [*command]
    words[0], words[words.index("--name") + 1] = program(), name
    if "--resume-from" in words:
        words[words.index("--resume-from") + 1] = name if resume is None else f"{name}:{resume}"
    if ranks:
        words[words.index("--ranks-per-node") + 1] = str(ranks)
    # The one interpreter that has the modules of this test.
    at = words.index("--")
    assert words[at + 1] == "python"
    words[at + 1] = sys.executable
    words[at:at] = ["--controller", cluster.address, "--env", "OMP_NUM_THREADS=1", *options]
    done = subprocess.run(words, capture_output=True, text=True, cwd=cluster.folder, env=clean(), timeout=240)
    assert done.returncode == 0, f"{shlex.join(words)}\n{done.stdout}\n{done.stderr}\n{cluster.log()}"
    return done.stdout + done.stderr


def early_commit(cluster: Cluster, name: str) -> int:
    """A committed step that leaves some to be trained. Steps so short may find the memory of earlier images taken."""
    early = [step for step in committed(cluster.folder / "store", name) if step < 60]
    assert early, cluster.log()
    return early[0]


@functools.cache
def page_commands(page: str, script: str) -> list[list[str]]:
    """Those that start a script and end by themselves, in the order of the page."""
    (path,) = (path for path in PAGES if path.name == page)
    found = [command for command in commands(path) if command[1] == "run" and script in command]
    return [command for command in found if "--nodes" not in command or command[command.index("--nodes") + 1] == "1"]


@pytest.mark.parametrize(("page", "script", "module", "job"), ALL_SCRIPTS, ids=[script for _, script, _, _ in ALL_SCRIPTS])
def test_a_script_runs_and_goes_on(cluster: Cluster, page: str, script: str, module: str, job: str) -> None:
    """As the page starts it, and then from an early step, or where it has a file of its own from that."""
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed (python/tests/torch_env.sh makes an environment)")
    (cluster.folder / script).write_text(script_of(page, script))
    first, second = page_commands(page, script)[:2]
    name = f"{job}-page"
    stored = "--checkpoint-dir" in first
    keep = ("--keep", "9") if stored else ()
    output = start(cluster, first, name, *keep)
    assert "resumed" not in output, output
    assert f"job {name} finished" in output, output
    step = early_commit(cluster, name) if stored else 60
    output = start(cluster, second, name if stored else f"{name}-again", *keep, resume=step)
    assert re.search(rf"resumed after step {step}\b", output), output
    assert len(re.findall("resumed after step", output)) == (2 if page == "trainer-guide.md" else 1), output


@pytest.mark.torch
def test_the_ddp_script_at_another_world_size(cluster: Cluster) -> None:
    """Saved by two ranks and gone on with by one: global batch and rate as the guide says."""
    (cluster.folder / "ddp.py").write_text(script_of("ddp.md", "ddp.py"))
    first, second = page_commands("ddp.md", "ddp.py")[:2]
    output = start(cluster, first, "rescaled", "--keep", "9")
    rates = dict(re.findall(r"step (\d+): global batch 16, rate ([\d.]+)", output))
    assert sorted(map(int, rates)) == list(range(1, 61)), output
    early = early_commit(cluster, "rescaled")
    output = start(cluster, second, "rescaled", "--keep", "9", ranks=1, resume=early)
    assert f"resumed after step {early}, saved by 2 ranks" in output, output
    resumed = dict(re.findall(r"step (\d+): global batch 8, rate ([\d.]+)", output))
    assert resumed == {step: rate for step, rate in rates.items() if int(step) > early}, output


@pytest.mark.torch
def test_the_exact_data_script_at_another_world_size(cluster: Cluster) -> None:
    """Saved by two ranks and gone on with by one: the global batch and the place in the data go on as before."""
    (cluster.folder / "elastic.py").write_text(script_of("exact-data.md", "elastic.py"))
    first, second = page_commands("exact-data.md", "elastic.py")[:2]
    output = start(cluster, first, "resized", "--keep", "9")
    steps = re.findall(r"step (\d+): global batch (\d+), (\d+) samples consumed", output)
    assert [(int(step), int(batch)) for step, batch, _ in steps[11:14]] == [(12, 40), (13, 20), (14, 40)], output
    assert [int(consumed) for _, _, consumed in steps[11:14]] == [480, 500, 540]
    early = early_commit(cluster, "resized")
    output = start(cluster, second, "resized", "--keep", "9", ranks=1, resume=early)
    assert f"resumed after step {early}, saved by 2 ranks" in output, output
    assert re.findall(r"step (\d+): global batch (\d+), (\d+) samples consumed", output) == steps[early:], output
