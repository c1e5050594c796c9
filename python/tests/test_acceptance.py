"""The acceptance table: each framework through the kill of a rank, of a node, growth, stop and resume, and a new controller.

Every row holds the same promises. No committed state is lost: the newest checkpoint never goes back. No working job is ended:
there are as many generations as failures account for. Little more than one interval is repeated after a failure. With the same
number of ranks the weights after every step are those of the undisturbed run, bit by bit; with another one each sample is
consumed once an epoch, but for the Trainer, which counts batches of the present world.
"""

from __future__ import annotations

import importlib.util
from collections import Counter

import pytest

import acceptance
import cluster
from acceptance import EVERY, FRAMEWORKS, STEPS, Course, Framework, StepLine

pytestmark = [pytest.mark.torch, pytest.mark.acceptance]

#: Steps that one failure may repeat: an interval, and the commit that was on its way.
REPEATED_MAX = 2 * EVERY


@pytest.fixture(scope="module", params=FRAMEWORKS, ids=lambda framework: framework.name)
def framework(request) -> Framework:
    chosen = request.param
    if cluster.program() is None:
        pytest.skip("there is no rankguard to test: cargo build")
    if importlib.util.find_spec(chosen.module) is None:
        pytest.skip(f"{chosen.module} is not installed (python/tests/torch_env.sh makes an environment)")
    return chosen


@pytest.fixture(scope="module")
def expected(framework, tmp_path_factory) -> dict[tuple[int, int], StepLine]:
    """The undisturbed run, by step and rank."""
    lines = acceptance.undisturbed(framework, tmp_path_factory.mktemp("undisturbed"))
    return {(line.step, line.rank): line for line in lines}


@pytest.fixture
def course(framework, tmp_path):
    with acceptance.course_of(framework, tmp_path) as course:
        try:
            yield course
        finally:
            # Shown with a test that fails.
            print(course.cluster.log())


def assert_exact(lines, expected) -> None:
    """The same samples, and the same weights after every step of every generation."""
    assert lines
    for line in lines:
        want = expected[line.step, line.rank]
        assert line.ids == want.ids, f"step {line.step}, rank {line.rank}, generation {line.generation}: other samples"
        assert line.digest == want.digest, f"step {line.step}, rank {line.rank}, generation {line.generation}: other weights"


def assert_repeats_little(lines, failures: int) -> None:
    """One generation more for each failure, and none that took more than an interval again."""
    repeated = acceptance.repeated_steps(lines)
    assert len(repeated) == failures + 1, f"{failures} failures, generations {sorted(repeated)}"
    assert max(repeated.values()) <= REPEATED_MAX, f"steps that were repeated, by generation: {repeated}"


def assert_samples_once(lines) -> None:
    """Every sample of a whole epoch once in what the final state consists of, and none twice in the epoch that is not over."""
    steps = acceptance.effective_steps(lines)
    assert sorted(steps) == list(range(1, max(steps) + 1)), "steps without a record"
    # The ranks of the last step may have been ended before all had recorded it.
    flat = [index for step in sorted(steps)[:-1] for line in steps[step] for index in line.ids]
    for start in range(0, len(flat), 240):
        twice = [index for index, count in Counter(flat[start : start + 240]).items() if count > 1]
        assert not twice, f"epoch {start // 240}: samples consumed more than once: {twice}"


def test_rank_kill(course: Course, expected) -> None:
    run = course.start("train", "2")
    course.await_saved("train", 2 * EVERY)
    saved = course.saved("train")
    course.kill_rank(1)
    course.await_saved("train", saved + 2 * EVERY)
    assert run.wait(timeout=600) == 0, course.output("train")
    lines = course.records("train")
    assert max(line.step for line in lines) == STEPS
    assert_exact(lines, expected)
    assert_repeats_little(lines, 1)
    assert "generation 2" in course.output("train") and "job train finished" in course.output("train")
    (case,) = course.cases("train")
    assert case["verdict"]["class"] == "killed-by-signal", case["verdict"]
    assert case["verdict"]["blamed"].get("rank") == 1, case["verdict"]


def test_node_kill_and_growth(course: Course) -> None:
    """A node is lost, the job goes on with the other, and takes the node back when it returns."""
    course.start("elastic", "1:2", steps=100_000)
    course.await_saved("elastic", 2 * EVERY)
    saved, first = course.saved("elastic"), course.generation("elastic")
    course.cluster.kill_agent("n2")
    course.await_world("elastic", course.framework.slots, first)
    course.await_saved("elastic", saved + 2 * EVERY)
    second = course.generation("elastic")
    course.cluster.return_agent("n2")
    course.await_world("elastic", 2 * course.framework.slots, second)
    course.await_saved("elastic", max(line.step for line in course.records("elastic")) + 2 * EVERY)
    course.cancel("elastic")
    lines = course.records("elastic")
    assert_repeats_little(lines, 2)
    if course.framework.counts_samples:
        assert_samples_once(lines)
    nodes = [case["verdict"]["blamed"] for case in course.cases("elastic")]
    assert "n2" in str(nodes), nodes


def test_stop_and_resume(course: Course, expected) -> None:
    course.start("train", "2")
    course.await_saved("train", 2 * EVERY)
    # One row is stopped from the keyboard.
    if course.framework.name == "ddp-lines":
        course.interrupt("train")
    else:
        course.cancel("train")
    saved = course.saved("train")
    run = course.resume("train")
    course.await_saved("train", saved + EVERY)
    assert run.wait(timeout=600) == 0, course.output("train")
    lines = course.records("train")
    assert max(line.step for line in lines) == STEPS
    assert_exact(lines, expected)
    assert_repeats_little(lines, 1)
    assert not course.cases("train")


def test_new_controller_on_an_old_store(course: Course, expected) -> None:
    course.start("train", "2")
    course.await_saved("train", 2 * EVERY)
    course.cancel("train")
    saved, before = course.saved("train"), course.records("train")
    course.cluster.replace_controller()
    if course.framework.name != "ddp-lines":
        # One row has the old agents under the new controller.
        course.cluster.replace_agents()
    course.cluster.await_nodes(2)
    if course.framework.has_store:
        refused = course.start("train", "2")
        assert refused.wait(timeout=120) != 0, course.output("train")
        assert "--resume-from" in course.output("train")
        assert course.records("train") == before, "ranks ran on a store of another run"
        assert course.saved("train") == saved
    run = course.resume("train")
    course.await_saved("train", saved + EVERY)
    assert run.wait(timeout=600) == 0, course.output("train")
    lines = course.records("train")
    assert_exact(lines, expected)
    assert max(line.step for line in lines) == STEPS
