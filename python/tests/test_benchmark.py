"""The public collection of labelled logs: it has no line of a source, and its tools give back the lines and the score."""

import http.server
import json
import pathlib
import subprocess
import sys
import threading

import pytest

import cluster

FOLDER = cluster.ROOT / "benchmark" / "failure-logs"
LABELLED = cluster.ROOT.parent / "shared" / "failure-logs" / "dev.jsonl"
COMMIT = "0123456789abcdef0123456789abcdef01234567"

#: What the servers of files and threads have.
FILE = "header\n\x1b[31mNCCL WARN Call to connect failed\x1b[0m\n  0%|\r 50%|\r100%|##########|\ntail\n"
THREAD = {"body": "It fails:\n```\n    RuntimeError: out of range\n```\nthe end"}
COMMENTS = [{"body": "> Killed\n\nIt was the OOM killer."}]


def tool(name: str, *arguments: object) -> subprocess.CompletedProcess:
    command = [sys.executable, str(FOLDER / name), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=FOLDER)


def labelled(identity: str, source: str, lines: "list[str]") -> dict:
    stream = {"kind": "rank-stderr", "rank": 3, "node": None, "lines": lines}
    answer = {"label": "host-oom-kill", "layer": "platform", "root_rank": None, "key_lines": [[0, 0]]}
    return {"id": identity, "source": source, "via": "read by hand", "title": "t", "sources": [stream], **answer}


CASES = [
    labelled(
        "a", f"https://github.com/o/r/blob/{COMMIT}/a%20b.log#L2-L3", ["NCCL WARN Call to connect failed", "100%|##########|"]
    ),
    labelled("b", "o/r#7", ["RuntimeError: out of range", "", "Killed"]),
    labelled("c", f"https://github.com/o/r/blob/{COMMIT}/a%20b.log", ["header", "a line that was changed since"]),
    labelled("d", "a file without an address", ["header"]),
    labelled("e", f"https://github.com/o/r/blob/{COMMIT}/gone.log", ["header"]),
]


@pytest.fixture
def published(tmp_path) -> pathlib.Path:
    source = tmp_path / "labelled.jsonl"
    source.write_text("".join(json.dumps(case) + "\n" for case in CASES))
    done = tool("publish.py", source)
    assert done.returncode == 0, done.stderr
    cases = tmp_path / "cases.jsonl"
    cases.write_text(done.stdout)
    return cases


@pytest.fixture
def server():
    answers = {
        f"/files/o/r/{COMMIT}/a%20b.log": FILE,
        "/threads/repos/o/r/issues/7": json.dumps(THREAD),
        "/threads/repos/o/r/issues/7/comments?per_page=100&page=1": json.dumps(COMMENTS),
    }
    asked = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            text = answers.get(self.path)
            self.send_response(404 if text is None else 200)
            self.end_headers()
            self.wfile.write((text or "").encode())

        def log_message(self, *words):
            pass

    served = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=served.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{served.server_port}", asked
    finally:
        served.shutdown()
        thread.join()
        served.server_close()


def fetched(published: pathlib.Path, address: str, folder: pathlib.Path) -> "tuple[subprocess.CompletedProcess, dict]":
    words = ["--cases", published, "--out", folder / "logs.jsonl", "--cache", folder / "cache", "--pause", "0"]
    done = tool("fetch.py", *words, "--files", f"{address}/files", "--threads", f"{address}/threads")
    cases = [json.loads(text) for text in (folder / "logs.jsonl").read_text().splitlines()]
    return done, {case["id"]: case for case in cases}


def test_a_published_case_has_no_line_of_its_source(published):
    text = published.read_text()
    for case in CASES:
        for line in case["sources"][0]["lines"]:
            assert not line or line not in text
    cases = [json.loads(line) for line in text.splitlines()]
    assert [case["source"] for case in cases[2:4]] == [CASES[2]["source"], None]


def test_lines_come_back_from_their_sources_and_a_changed_one_is_missing(published, server, tmp_path):
    address, asked = server
    done, cases = fetched(published, address, tmp_path)
    assert done.returncode == 1
    for at in (0, 1):
        case = cases[CASES[at]["id"]]
        assert case["sources"][0]["lines"] == CASES[at]["sources"][0]["lines"]
        assert case["missing"] == []
    assert cases["c"]["sources"][0]["lines"] == ["header", ""] and cases["c"]["missing"] == [[0, 1]]
    assert set(cases) == {"a", "b", "c"}
    assert "c: 1 of 2 lines are not in https://github.com/o/r" in done.stderr
    assert "e: " in done.stderr and "404" in done.stderr
    assert done.stdout.endswith("2 cases complete, 2 not, 1 have a source without an address\n")
    # Each address was asked for once, and a second run asks only for what failed.
    assert len(asked) == len(set(asked)) == 4
    fetched(published, address, tmp_path)
    assert asked[4:] == [f"/files/o/r/{COMMIT}/gone.log"]


def test_the_score_is_that_of_a_count_by_hand(tmp_path):
    def case(identity, label, layer, **more):
        return {"id": identity, "label": label, "layer": layer, "root_rank": None, "multi_rank": False, "sources": [], **more}

    truth = [
        case("a", "gpu-row-remap-pending", "hardware", root_rank=3, confidence="high"),
        case("b", "none", "none", tags=["hard"]),
        case("c", "nccl-timeout", "network", multi_rank=True),
        case("d", "segfault", "user-code"),
    ]
    answers = [
        {"id": "a", "class": "gpu-ecc-degrading", "layer": "hardware", "root_rank": 3},
        {"id": "b", "label": "segfault", "layer": "user-code"},
        {"id": "c", "class": "nccl-timeout", "layer": "network", "root_rank": 1},
    ]
    for name, rows in (("cases", truth), ("answers", answers)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = tool("score.py", "--cases", tmp_path / "cases.jsonl", "--misses", tmp_path / "answers.jsonl")
    assert done.returncode == 0, done.stderr
    shown = dict(line.split("   ", 1) for line in done.stdout.splitlines() if " of " in line)
    figures = {name.strip(): tuple(int(word) for word in value.split()[:3:2]) for name, value in shown.items()}
    assert figures == {
        "class": (1, 4),
        "class, coarse": (2, 4),
        "class, hard": (0, 1),
        "class, label certain": (0, 1),
        "failure, class stated": (2, 3),
        "harmless, no failure stated": (0, 1),
        "layer": (2, 4),
        "no rank named where none is known": (0, 1),
        "root rank": (1, 1),
    }
    assert [line.split("\t")[1:4] for line in done.stdout.splitlines() if line.startswith("miss")] == [
        ["a", "gpu-row-remap-pending", "gpu-ecc-degrading"],
        ["b", "none", "segfault"],
        ["d", "segfault", "unknown"],
    ]


@pytest.mark.parametrize("name", ["publish.py", "score.py", "fetch.py"])
def test_a_broken_file_is_refused_with_its_line(name, tmp_path):
    broken = tmp_path / "broken.jsonl"
    broken.write_text('\n{"id": 1')
    options = {"publish.py": [broken], "score.py": [broken], "fetch.py": ["--cases", broken, "--out", tmp_path / "o"]}
    done = tool(name, *options[name])
    assert done.returncode == 65 and "broken.jsonl:2: " in done.stderr, done.stderr


def test_the_labels_are_classes_that_are_defined():
    cases = [json.loads(text) for text in (FOLDER / "cases.jsonl").read_text().splitlines()]
    defined = {line.split("|")[1].strip() for line in (FOLDER / "classes.md").read_text().splitlines() if line[:2] == "| "}
    assert len(cases) == 157 and {case["label"] for case in cases} <= defined


def test_the_collection_is_that_of_the_labelled_logs_and_the_table_is_measured():
    """Where the lines are at hand; a stranger fetches them."""
    if not LABELLED.exists():
        pytest.skip(
            "SKIPPED: the labelled logs are not beside this checkout, so the table of benchmark/failure-logs was not measured"
        )
    assert tool("publish.py", LABELLED).stdout == (FOLDER / "cases.jsonl").read_text()
    if cluster.program() is None:
        pytest.skip("there is no rankguard to measure: cargo build")
    answers = subprocess.run([cluster.program(), "classify", LABELLED], capture_output=True, text=True, timeout=600)
    assert answers.returncode == 0, answers.stderr
    score = subprocess.run(
        [sys.executable, str(FOLDER / "score.py"), "/dev/stdin"],
        input=answers.stdout,
        check=True,
        capture_output=True,
        text=True,
    )
    shown = {line[:36].strip(): line[36:].split()[0] for line in score.stdout.splitlines()}
    row = next(line for line in (FOLDER / "README.md").read_text().splitlines() if line.startswith("| `rankguard classify`"))
    columns = ["class", "layer", "harmless, no failure stated", "root rank", "class, hard", "class, cascade"]
    assert [cell.split()[0] for cell in row.split("|")[2:8]] == [shown[column] for column in columns]
