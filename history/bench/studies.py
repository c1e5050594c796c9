"""The studies as one writes them with pandas: TABLE FILE POPULATION; a JSON line a study."""

import json
import sys
import time

import numpy as np
import pandas as pd
from scipy import stats

TABLE, FILE, POPULATION = sys.argv[1], sys.argv[2], int(sys.argv[3])
WORDS = {name: str for name in ("node", "class", "state", "message")}


def now():
    return time.perf_counter(), time.process_time()


def told(study, begun, values):
    seconds, cpu_s = (after - before for after, before in zip(now(), begun))
    values = [float(value) for value in values]
    print(json.dumps({"study": study, "seconds": seconds, "cpu_s": cpu_s, "values": values}))


def fitted(durations):
    durations = durations[durations > 0]
    logs = np.log(durations)
    shape, _, scale = stats.weibull_min.fit(durations, floc=0)
    alpha, _, theta = stats.gamma.fit(durations, floc=0)
    return [durations.mean(), shape, scale, logs.mean(), logs.std(), alpha, theta]


def failures(rows):
    begun = now()
    told("mix", begun, rows["class"].value_counts(dropna=False))

    begun = now()
    moments = rows[[name for name in ("time", "end") if name in rows]]
    window = moments.max().max() - moments.min().min()
    count, hours = rows["time"].count(), window / 3600
    low, high = stats.chi2.ppf(0.025, 2 * count) / 2, stats.chi2.ppf(0.975, 2 * count + 2) / 2
    told("mtbf", begun, [low / hours, high / hours, hours / count])

    begun = now()
    repaired = rows.dropna(subset=["repair_s"])
    hours = repaired["repair_s"] / 3600
    wanted = ["count", "mean", "median", "std", "max"]
    by_cause = hours.groupby(repaired["class"].fillna("")).agg(wanted).fillna(0)
    told("repair", begun, list(by_cause.to_numpy().ravel()) + list(hours.agg(wanted)))

    begun = now()
    times = rows["time"].dropna().sort_values()
    chain = (times.diff() >= 900).cumsum()
    chains = times.groupby(chain).agg(["size", "first", "last"])
    chains = chains[chains["size"] > 1]
    lengths = chains["last"] - chains["first"]
    members = chains["size"].sum()
    told("bursts", begun, [len(times), len(chains), members, members / len(times), lengths.median(), lengths.max(),
                           chains["size"].max(), (chains["size"] == 2).mean()])

    begun = now()
    placed = rows.dropna(subset=["time", "node"]).sort_values(["node", "time"])
    after = placed.groupby("node")["time"].diff()
    same = placed["node"] == placed["node"].shift(-1)
    nearest = np.fmin(after, after.shift(-1).where(same))
    told("correlated", begun, [(nearest <= window).sum() for window in (60, 1800, 86400)])

    begun = now()
    worst = rows["node"].value_counts()
    top = [worst.iloc[: int(np.ceil(POPULATION * share / 100))].sum() / worst.sum() for share in (1, 5, 10)]
    told("lemons", begun, top + list(worst.iloc[:20]))

    begun = now()
    told("fits", begun, fitted(np.diff(np.sort(rows["time"].dropna().to_numpy()))))


def outages(rows):
    begun = now()
    whole = rows.dropna(subset=["node", "start", "end", "state"])
    hours = (whole["end"] - whole["start"]) / 3600
    up = whole["state"] == "up"
    told("fits", begun, fitted(hours[up].to_numpy()) + fitted(hours[~up].to_numpy()))


def events(rows):
    begun = now()
    rows = rows.assign(time=np.floor(rows["time"]))

    def left(before):
        repeat = (before["message"] == rows["message"]) & (rows["time"] - before["time"] <= 600)
        return len(rows) - repeat.sum()

    columns = ["message", "time"]
    prefix = rows["node"].str.split(":").str[0]
    told("coalesce", begun, [len(rows), left(rows[columns].shift()), left(rows.groupby(prefix)[columns].shift()),
                             left(rows.groupby("node")[columns].shift())])


begun = now()
rows = pd.read_csv(FILE, dtype=WORDS)
told("read the table", begun, [len(rows)])
{"failures": failures, "outages": outages, "events": events}[TABLE](rows)
