#!/usr/bin/env python3
"""What Drain3 (PyPI `drain3`) makes of the same lines, to stand beside our own figures.

    peer_drain3.py speed FILE [RUNS]     lines a second over FILE (five times in a row), three ways
    peer_drain3.py quality LOGHUB_DIR    grouping accuracy and pairwise F-measure on the ten loghub-2k systems

Two settings are measured. `one`: a single configuration for every system, Drain3's own example `drain3.ini` (masking,
threshold 0.4, depth 4, "_" as a further delimiter). `tuned`: for each system the expressions, threshold and depth that
the authors of Drain publish for their benchmark (github.com/logpai/logparser, logparser/Drain/benchmark.py).
"""

import csv
import statistics
import sys
import time
from collections import Counter, defaultdict

from drain3.drain import Drain
from drain3 import TemplateMiner
from drain3.masking import LogMasker, MaskingInstruction
from drain3.template_miner_config import TemplateMinerConfig

EDGE = r"((?<=[^A-Za-z0-9])|^)", r"((?=[^A-Za-z0-9])|$)"
EXAMPLE_MASKS = [
    (EDGE[0] + r"(([0-9a-f]{2,}:){3,}([0-9a-f]{2,}))" + EDGE[1], "ID"),
    (EDGE[0] + r"(\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3})" + EDGE[1], "IP"),
    (EDGE[0] + r"([0-9a-f]{6,} ?){3,}" + EDGE[1], "SEQ"),
    (EDGE[0] + r"([0-9A-F]{4} ?){4,}" + EDGE[1], "SEQ"),
    (EDGE[0] + r"(0x[a-f0-9A-F]+)" + EDGE[1], "HEX"),
    (EDGE[0] + r"([\-\+]?\d+)" + EDGE[1], "NUM"),
]
# system: (expressions, threshold, depth)
TUNED = {
    "Apache": ([r"(\d+\.){3}\d+"], 0.5, 4),
    "BGL": ([r"core\.\d+"], 0.5, 4),
    "HDFS": ([r"blk_-?\d+", r"(\d+\.){3}\d+(:\d+)?"], 0.5, 4),
    "Hadoop": ([r"(\d+\.){3}\d+"], 0.5, 4),
    "Linux": ([r"(\d+\.){3}\d+", r"\d{2}:\d{2}:\d{2}"], 0.39, 6),
    "OpenSSH": ([r"(\d+\.){3}\d+", r"([\w-]+\.){2,}[\w-]+"], 0.6, 5),
    "OpenStack": ([r"((\d+\.){3}\d+,?)+", r"/.+?\s", r"\d+"], 0.5, 5),
    "Spark": ([r"(\d+\.){3}\d+", r"\b[KGTM]?B\b", r"([\w-]+\.){2,}[\w-]+"], 0.5, 4),
    "Thunderbird": ([r"(\d+\.){3}\d+"], 0.5, 4),
    "Zookeeper": ([r"(/|)(\d+\.){3}\d+(:\d+)?"], 0.5, 4),
}


def example_masker():
    return LogMasker([MaskingInstruction(p, name) for p, name in EXAMPLE_MASKS], "<:", ":>")


def one():
    drain = Drain(depth=4, sim_th=0.4, max_children=100, max_clusters=1024, extra_delimiters=["_"], param_str="<:*:>")
    masker = example_masker()
    return lambda line: drain.add_log_message(masker.mask(line))[0].cluster_id


def public():
    """The class that its documentation tells one to use, with its example settings and without saving to disk."""
    config = TemplateMinerConfig()
    config.drain_sim_th, config.drain_depth, config.drain_max_children = 0.4, 4, 100
    config.drain_max_clusters, config.drain_extra_delimiters = 1024, ["_"]
    config.masking_instructions = [MaskingInstruction(p, name) for p, name in EXAMPLE_MASKS]
    config.mask_prefix, config.mask_suffix = "<:", ":>"
    return TemplateMiner(config=config).add_log_message


def unmasked():
    drain = Drain(depth=4, sim_th=0.4, max_children=100, max_clusters=1024)
    return lambda line: drain.add_log_message(line)[0].cluster_id


def tuned(system):
    expressions, threshold, depth = TUNED[system]
    drain = Drain(depth=depth, sim_th=threshold, max_children=100)
    masker = LogMasker([MaskingInstruction(p, "*") for p in expressions], "<", ">")
    return lambda line: drain.add_log_message(masker.mask(line))[0].cluster_id


def score(truth, guess):
    """Grouping accuracy and pairwise F-measure, as the benchmark's evaluator defines them."""
    groups, cells, sizes = defaultdict(list), Counter(zip(guess, truth)), Counter(truth)
    for line, name in enumerate(guess):
        groups[name].append(line)
    right = sum(len(lines) for lines in groups.values()
                if len({truth[n] for n in lines}) == 1 and sizes[truth[lines[0]]] == len(lines))

    def pairs(counts):
        return sum(n * (n - 1) // 2 for n in counts)

    both = pairs(cells.values())
    precision, recall = both / pairs(Counter(guess).values()), both / pairs(sizes.values())
    return right / len(truth), 2 * precision * recall / (precision + recall)


def quality(folder):
    print(f"{'system':<12} {'one GA':>8} {'one F':>8} {'tuned GA':>9} {'tuned F':>8}")
    columns = []
    for system in sorted(TUNED):
        with open(f"{folder}/{system}/{system}_2k.log_structured.csv", newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        truth = [row["EventId"] for row in rows]
        row = []
        for learn in (one(), tuned(system)):
            row += score(truth, [learn(r["Content"]) for r in rows])
        columns.append(row)
        print(f"{system:<12} {row[0]:8.3f} {row[1]:8.3f} {row[2]:9.3f} {row[3]:8.3f}")
    mean = [statistics.mean(column) for column in zip(*columns)]
    print(f"{'mean':<12} {mean[0]:8.3f} {mean[1]:8.3f} {mean[2]:9.3f} {mean[3]:8.3f}")


def speed(path, runs):
    with open(path, encoding="utf-8", errors="replace") as file:
        lines = file.read().splitlines()
    lines *= 5
    ways = ("TemplateMiner, example settings", public), ("engine with masks", one), ("engine, no masks", unmasked)
    for name, make in ways:
        rates = []
        for _ in range(runs):
            learn = make()
            start = time.perf_counter()
            for line in lines:
                learn(line)
            rates.append(len(lines) / (time.perf_counter() - start))
        print(f"drain3 {name}: {statistics.median(rates):.0f} lines/s "
              f"(median of {runs}, {min(rates):.0f} to {max(rates):.0f}; {len(lines)} lines)")


if __name__ == "__main__":
    if len(sys.argv) >= 3 and sys.argv[1] == "speed":
        speed(sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 3)
    elif len(sys.argv) == 3 and sys.argv[1] == "quality":
        quality(sys.argv[2])
    else:
        sys.exit(__doc__)
