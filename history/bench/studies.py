"""The studies as one writes them with pandas: TABLE FILE POPULATION NAMES TIMES; a JSON line a study.

NAMES is how names are held: str, as pandas reads them by itself, or category, each name once. Each study is asked TIMES
times; what is told is the median.
"""

import json
import sys
import time

import numpy as np
import pandas as pd
from scipy import stats

TABLE, FILE, POPULATION, NAMES, TIMES = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4], int(sys.argv[5])
WORDS = {name: NAMES for name in ("node", "class", "state", "message")}


def asked(name, study):
    spent = []
    for _ in range(TIMES):
        begun = time.perf_counter(), time.process_time()
        answer = study()
        spent.append((time.perf_counter() - begun[0], time.process_time() - begun[1]))
    seconds, cpu_s = (sorted(one)[TIMES // 2] for one in zip(*spent))
    values = [len(answer)] if isinstance(answer, pd.DataFrame) else [float(value) for value in answer]
    print(json.dumps({"study": name, "seconds": seconds, "cpu_s": cpu_s, "values": values}))
    return answer


def plain_bytes():
    with open(FILE, "rb", buffering=0) as file:
        lines = count = 0
        while block := file.read(1 << 18):
            lines, count = lines + block.count(b"\n"), count + len(block)
    return [count, lines]


def read():
    return pd.read_csv(FILE, dtype=WORDS)


def mix(rows):
    return rows["class"].value_counts(dropna=False)


def mtbf(rows):
    moments = rows[[name for name in ("time", "end") if name in rows]]
    window = moments.max().max() - moments.min().min()
    count, hours = rows["time"].count(), window / 3600
    low, high = stats.chi2.ppf(0.025, 2 * count) / 2, stats.chi2.ppf(0.975, 2 * count + 2) / 2
    return [low / hours, high / hours, hours / count]


def repair(rows):
    repaired = rows.dropna(subset=["repair_s"])
    hours = repaired["repair_s"] / 3600
    wanted = ["count", "mean", "median", "std", "max"]
    by_cause = hours.groupby(repaired["class"], dropna=False).agg(wanted).sort_index(na_position="first").fillna(0)
    return list(by_cause.to_numpy().ravel()) + list(hours.agg(wanted))


def bursts(rows):
    times = rows["time"].dropna().sort_values()
    chain = (times.diff() >= 900).cumsum()
    chains = times.groupby(chain).agg(["size", "first", "last"])
    chains = chains[chains["size"] > 1]
    lengths = chains["last"] - chains["first"]
    members = chains["size"].sum()
    return [len(times), len(chains), members, members / len(times), lengths.median(), lengths.max(),
            chains["size"].max(), (chains["size"] == 2).mean()]


def correlated(rows):
    placed = rows.dropna(subset=["time", "node"]).sort_values(["node", "time"])
    after = placed.groupby("node")["time"].diff()
    same = placed["node"] == placed["node"].shift(-1)
    nearest = np.fmin(after, after.shift(-1).where(same))
    return [(nearest <= window).sum() for window in (60, 1800, 86400)]


def lemons(rows):
    worst = rows["node"].value_counts()
    top = [worst.iloc[: int(np.ceil(POPULATION * share / 100))].sum() / worst.sum() for share in (1, 5, 10)]
    return top + list(worst.iloc[:20])


def fitted(durations):
    durations = durations[durations > 0]
    logs = np.log(durations)
    shape, _, scale = stats.weibull_min.fit(durations, floc=0)
    alpha, _, theta = stats.gamma.fit(durations, floc=0)
    return [durations.mean(), shape, scale, logs.mean(), logs.std(), alpha, theta]


def fits(rows):
    if "state" not in rows:
        return fitted(np.diff(np.sort(rows["time"].dropna().to_numpy())))
    whole = rows.dropna(subset=["node", "start", "end", "state"])
    hours = (whole["end"] - whole["start"]) / 3600
    up = whole["state"] == "up"
    return fitted(hours[up].to_numpy()) + fitted(hours[~up].to_numpy())


def coalesce(rows):
    rows = rows.assign(time=np.floor(rows["time"]))

    def left(before):
        repeat = (before["message"] == rows["message"]) & (rows["time"] - before["time"] <= 600)
        return len(rows) - repeat.sum()

    columns = ["message", "time"]
    prefix = rows["node"].str.split(":").str[0]
    return [len(rows), left(rows[columns].shift()), left(rows.groupby(prefix)[columns].shift()),
            left(rows.groupby("node")[columns].shift())]


STUDIES = {
    "failures": [mix, mtbf, repair, bursts, correlated, lemons, fits],
    "outages": [fits],
    "events": [coalesce],
}

asked("plain bytes", plain_bytes)
table = asked("read the table", read)
for study in STUDIES[TABLE]:
    asked(study.__name__, lambda: study(table))
