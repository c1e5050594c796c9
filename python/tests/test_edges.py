"""What callers do wrong, and what happens to them meanwhile: signals, forks, threads, bad arguments."""

import contextlib
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import warnings

import numpy as np
import pytest

import rankguard

NAN = float("nan")


def interrupted(work, seconds=0.3):
    """Runs work and sends SIGINT to this process meanwhile; how long it took to end."""
    sent = []

    def send():
        time.sleep(seconds)
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            work()
        return time.monotonic() - sent[0]
    finally:
        thread.join()


@pytest.fixture
def lonely(tmp_path):
    """Rank 0 of two; the other never comes."""
    session = rankguard.connect(tmp_path, job="test", rank=0, world_size=2, generation=1)
    session.checkpoint({"w": np.ones(3)}, step=1)
    yield session
    with warnings.catch_warnings(), contextlib.suppress(rankguard.RankguardError):
        warnings.simplefilter("ignore")
        if not session.closed:
            session.wait(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session.done()


def test_ctrl_c_ends_a_wait(lonely):
    assert interrupted(lambda: lonely.wait(60)) < 10


def test_ctrl_c_ends_done_and_nothing_is_waited_for_afterwards(lonely):
    with pytest.warns(RuntimeWarning, match="rank 1 had left no shard"):
        assert interrupted(lonely.done) < 10
    assert lonely.closed


def test_done_after_a_failed_wait_waits_for_no_other_rank(lonely):
    with pytest.raises(rankguard.RankguardError, match="not all is written"):
        lonely.wait(0.1)
    before = time.monotonic()
    with pytest.warns(RuntimeWarning, match="step 1 was not made durable: .*rank 1 had left no shard"):
        lonely.done()
    lonely.done()
    # The limit for other ranks is ten minutes.
    assert time.monotonic() - before < 60


def test_ctrl_c_ends_a_stall_and_leaves_the_arena_usable(tmp_path):
    session = rankguard.connect(tmp_path, job="test", rank=0, world_size=1)
    state = {"w": np.zeros(8_000_000)}
    session.checkpoint(state, step=1)
    session.wait()
    stop = threading.Event()

    def flood():
        # The only slot is taken again as soon as it is free, so that the main thread has to wait for it.
        step = 2
        while not stop.is_set():
            session.checkpoint(state, step=step)
            step += 1

    thread = threading.Thread(target=flood)
    thread.start()

    def work():
        step = 1000
        while True:
            session.checkpoint(state, step=step)
            step += 1

    try:
        assert interrupted(work) < 10
    finally:
        stop.set()
        thread.join()
    assert session.checkpoint({"w": np.arange(8_000_000.0)}, step=5000).sealed
    session.wait()
    live = {"w": np.zeros(8_000_000)}
    assert session.restore(live).step == 5000 and live["w"][-1] == 7_999_999
    session.done()


def test_a_handler_of_sigint_that_raises_nothing_lets_the_wait_go_on(tmp_path):
    ranks = [rankguard.connect(tmp_path, job="test", rank=rank, world_size=2, generation=1) for rank in (0, 1)]
    handled = []

    def handle(*_):
        handled.append(1)
        with pytest.raises(rankguard.RankguardError, match="signal handler called it while another rankguard call"):
            ranks[0].counts()

    before = signal.signal(signal.SIGINT, handle)
    ranks[0].checkpoint({"w": np.ones(3)}, step=1)

    def later():
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.3)
        ranks[1].checkpoint({"w": np.ones(3)}, step=1)

    thread = threading.Thread(target=later)
    thread.start()
    try:
        assert ranks[0].wait(60) == 1 and handled == [1]
    finally:
        signal.signal(signal.SIGINT, before)
        thread.join()
        for session in ranks:
            session.done()


def test_ctrl_c_ends_a_program_that_waits(tmp_path):
    script = (
        "import rankguard\n"
        f"session = rankguard.init({str(tmp_path)!r}, rank=0, world_size=2, generation=1)\n"
        "rankguard.checkpoint({'epoch': 1}, step=1)\n"
        "print('waiting', flush=True)\n"
        "rankguard.wait(600)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "waiting\n"
    time.sleep(0.2)
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=60)
    assert "KeyboardInterrupt" in err and child.returncode == -signal.SIGINT, err
    assert "panicked" not in err


def in_fork(work):
    """Runs work in a fork that exits as a program does; its exit status and what it wrote to standard error."""
    script = (
        "import os, sys, tempfile, numpy, rankguard\n"
        "session = rankguard.init(tempfile.mkdtemp(), job='test', rank=0, world_size=1)\n"
        "state = {'w': numpy.zeros(1000)}\n"
        "session.checkpoint(state, step=1)\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        f"    {work}\n"
        "    sys.exit(0)\n"
        "status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])\n"
        "session.checkpoint(state, step=2)\n"
        "assert session.wait() == 2 and session.restore(state).step == 2\n"
        "rankguard.done()\n"
        "sys.exit(status)\n"
    )
    return subprocess.run([sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    "work", ["pass", "rankguard.done()", "del session; rankguard._current = None", "import gc; gc.collect()"]
)
def test_a_fork_ends_without_a_word(work):
    done = in_fork(work)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    "call",
    [
        "rankguard.step(3)",
        "rankguard.checkpoint(state, step=9)",
        "rankguard.begin(state, step=9)",
        "rankguard.finish()",
        "rankguard.restore(state)",
        "rankguard.wait()",
        "rankguard.idle()",
        "rankguard.counts()",
    ],
)
def test_a_fork_does_not_speak_for_its_parent(call):
    done = in_fork(call)
    assert done.returncode == 1 and "is a fork of the rank's process" in done.stderr and "panicked" not in done.stderr, (
        done.stderr
    )


def _worker(n):
    try:
        rankguard.step(n)
    except rankguard.RankguardError as problem:
        return str(problem)
    return None


def test_workers_of_a_pool_and_programs_leave_the_session_alone(tmp_path):
    rankguard.init(tmp_path, job="test", rank=0, world_size=1)
    try:
        rankguard.checkpoint({"w": np.zeros(10)}, step=1)
        with multiprocessing.get_context("fork").Pool(2) as pool:
            told = pool.map(_worker, range(4))
        assert all("is a fork of the rank's process" in one for one in told)
        subprocess.run([sys.executable, "-c", "pass"], check=True, preexec_fn=lambda: None)
        rankguard.checkpoint({"w": np.zeros(10)}, step=2)
        assert rankguard.wait() == 2
    finally:
        rankguard.done()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"slots": 9}, "slots is 9; it can be 1 to 3"),
        ({"slots": 0}, "slots is 0"),
        ({"slots": True}, "slots is True, a bool"),
        ({"slots": 1.0}, "slots is 1.0, a float"),
        ({"keep": -1}, "keep is -1"),
        ({"wait_s": NAN}, "wait_s is nan"),
        ({"wait_s": "5"}, "wait_s is '5', a str"),
        ({"commit_within_s": -1}, "commit_within_s is -1"),
        ({"commit_within_s": 1e300}, "commit_within_s is 1e"),
        ({"when_full": "drop"}, "when_full is 'drop'; it can be wait"),
        ({"rank": 2, "world_size": 2}, "rank 2 is outside"),
        ({"rank": 0}, "rank without world_size"),
        ({"rank": -1, "world_size": 1}, "rank is -1"),
        ({"generation": 1 << 70}, "generation is"),
        ({"job": ""}, "job is empty"),
        ({"job": 7}, "job is 7"),
        ({"checkpoint_every": 2.5}, "checkpoint_every is 2.5"),
        ({"slot": 2}, "unexpected keyword argument 'slot'"),
    ],
    ids=str,
)
def test_an_option_out_of_range_is_named(tmp_path, options, why):
    with pytest.raises((TypeError, ValueError), match=why):
        rankguard.connect(tmp_path, **options)


@pytest.mark.parametrize("directory", ["", b"", 7, "a\0b"], ids=repr)
def test_a_directory_that_is_none_is_named(directory):
    with pytest.raises((TypeError, ValueError), match="local_dir is"):
        rankguard.connect(directory)


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (lambda s: s.step(5.7), "n is 5.7, a float"),
        (lambda s: s.step(-1), "n is -1"),
        (lambda s: s.step(True), "n is True, a bool"),
        (lambda s: s.step(1 << 80), "n is"),
        (lambda s: s.step(1, waited_s=NAN), "waited_s is nan"),
        (lambda s: s.step(1, loss="low"), "loss is a str"),
        (lambda s: s.checkpoint({}, step=5.7), "step is 5.7"),
        (lambda s: s.checkpoint({}, step=-3), "step is -3"),
        (lambda s: s.begin({}, step="3"), "step is '3'"),
        (lambda s: s.restore({}, step=np.bool_(True)), "step is"),
        (lambda s: s.restore({}, strict="no"), "strict is 'no'"),
        (lambda s: s.restore({}, cast=1), "cast is 1"),
        (lambda s: s.load(step=1.0), "step is 1.0"),
        (lambda s: s.due(0.5), "step is 0.5"),
        (lambda s: s.wait(NAN), "seconds is nan"),
        (lambda s: s.wait(-1), "seconds is -1"),
        (lambda s: s.wait(float("inf")), "seconds is inf"),
        (lambda s: s.checkpoint([], step=1), "a state is a dict"),
    ],
)
def test_an_argument_out_of_range_is_named(session, call, why):
    with pytest.raises((TypeError, ValueError), match=why):
        call(session)


def test_integers_of_numpy_are_steps(session):
    session.step(np.int64(3))
    assert session.checkpoint({"w": np.zeros(1)}).sealed and session.wait(np.float32(60)) == 3


def test_a_save_without_a_known_step_is_refused(session):
    for save in (session.checkpoint, session.begin):
        with pytest.raises(rankguard.RankguardError, match=r"step is unknown; pass step=n, or call rankguard.step"):
            save({"w": np.zeros(1)})


def test_a_default_job_beside_others_is_refused_with_their_names(tmp_path, monkeypatch):
    for job in ("a", "b"):
        session = rankguard.connect(tmp_path, job=job)
        session.checkpoint({"w": np.ones(1)}, step=1)
        session.done()
    session = rankguard.connect(tmp_path)
    for ask in (lambda: session.restore({}), session.newest, session.load):
        with pytest.raises(rankguard.RankguardError, match=r"no checkpoint of the job 'local'.* of a, b; pass init\("):
            ask()
    session.done()
    session = rankguard.connect(tmp_path, job="local")
    assert session.newest() is None
    session.done()


def test_a_relative_directory_is_the_one_of_its_init(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    session = rankguard.connect("store", job="test")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    session.checkpoint({"w": np.ones(1)}, step=1)
    assert session.wait() == 1 and list(tmp_path.glob("store/test/*/MANIFEST"))
    session.done()


def test_idle_and_the_version_are_there(tmp_path):
    import importlib.metadata

    assert rankguard.__version__ == importlib.metadata.version("rankguard")
    rankguard.init(tmp_path, job="test")
    rankguard.checkpoint({"w": np.ones(1)}, step=1)
    rankguard.wait()
    assert isinstance(rankguard.idle(), bool)
    rankguard.done()
    for call in (rankguard.idle, rankguard.counts, lambda: rankguard.step(2)):
        with pytest.raises(rankguard.RankguardError, match="session is over"):
            call()


def test_several_threads_report_and_save(session):
    problems = []

    def report(first):
        try:
            for n in range(first, first + 200):
                session.step(n, loss=0.5)
                session.due()
            session.checkpoint({"w": np.full(10, first)}, step=first)
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=report, args=(1000 * n,)) for n in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems and session.counts()["sealed"] == 4
    assert session.wait() in (1000, 2000, 3000, 4000)


def test_an_error_in_a_state_dict_is_the_callers_and_costs_nothing(session):
    class Broken:
        def state_dict(self):
            raise KeyError("mine")

        def load_state_dict(self, state):
            pass

    for call in (session.checkpoint, session.begin):
        with pytest.raises(KeyError, match="mine"):
            call({"w": np.zeros(3), "model": Broken()}, step=1)
    assert session.checkpoint({"w": np.zeros(3)}, step=1).sealed and session.wait() == 1
    assert session.counts() == {"sealed": 1, "skipped": 0, "waited": 0, "replaced": 0, "failed": 0}


@pytest.mark.parametrize("kind", ["absent", "a file", "silent"])
def test_a_wrong_socket_of_an_agent_is_named(tmp_path, monkeypatch, kind):
    import socket

    path = tmp_path / "agent.sock"
    listener = socket.socket(socket.AF_UNIX)
    if kind == "a file":
        path.write_text("x")
    elif kind == "silent":
        listener.bind(str(path))
        listener.listen(1)
    monkeypatch.setenv("RANKGUARD_SOCKET", str(path))
    if kind == "silent":
        # An agent that does not answer has ten seconds; Ctrl-C ends the wait for it.
        assert interrupted(rankguard.connect) < 9
    else:
        with pytest.raises(rankguard.RankguardError, match=r"cannot connect to the agent at .*agent.sock.*RANKGUARD_SOCKET"):
            rankguard.connect()
    listener.close()


def test_an_error_survives_pickling_so_that_other_ranks_can_read_it():
    problem = pickle.loads(pickle.dumps(rankguard.RankguardError("why")))
    assert type(problem) is rankguard.RankguardError and str(problem) == "why"
