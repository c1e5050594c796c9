#!/usr/bin/env python3
"""Score the answers of a classifier against the labels of the published cases.

usage: score.py [--cases cases.jsonl] [--logs logs.jsonl] [--misses] ANSWERS.jsonl

An answer is one JSON object a line: {"id", "class" (or "label"), "layer", "root_rank"}. The class "unknown" states that nothing
was recognised, "none" that nothing failed. A case without an answer counts as unknown. With --logs only cases of which fetch.py
found every line are counted. Exit code 64: wrong use. 65: a broken file.
"""

from __future__ import annotations

import argparse
import json
import math
import pathlib
import re
import sys
from collections import defaultdict
from typing import Any, Optional

HERE = pathlib.Path(__file__).resolve().parent
_ROW = re.compile(r"^\| ([a-z0-9-]+) \| [a-z-]+ \| ([a-z0-9-]+|-|) \|", re.MULTILINE)


def wilson(right: int, of: int, z: float = 1.96) -> tuple[float, float]:
    """The 95 % interval of a share (Wilson 1927)."""
    if of == 0:
        return (0.0, 1.0)
    share, scale = right / of, 1 + z * z / of
    centre = (share + z * z / (2 * of)) / scale
    half = z * math.sqrt(share * (1 - share) / of + z * z / (4 * of * of)) / scale
    return (centre - half, centre + half)


def crosswalk() -> dict[str, str]:
    """The coarse class of each class, after classes.md."""
    rows = _ROW.findall((HERE / "classes.md").read_text(encoding="utf-8"))
    return {fine: coarse if coarse not in ("", "-") else fine for fine, coarse in rows}


def figures(truth: list[dict[str, Any]], answers: dict[str, dict[str, Any]]) -> tuple[dict[str, list[int]], list[str]]:
    """Right answers and cases for each figure, and a line for each case with another class."""
    coarse = crosswalk()
    tally: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    misses = []

    def count(figure: str, is_right: bool) -> None:
        tally[figure][0] += is_right
        tally[figure][1] += 1

    for case in truth:
        answer = answers.get(case["id"], {})
        label = case["label"]
        given = answer.get("class") or answer.get("label") or "unknown"
        is_right = given == label
        count("class", is_right)
        count("class, coarse", coarse.get(given, given) == coarse.get(label, label))
        count("layer", answer.get("layer") == case["layer"])
        for tag in case.get("tags") or []:
            count(f"class, {tag}", is_right)
        if case.get("confidence") == "high":
            count("class, label certain", is_right)
        if label == "none":
            count("harmless, no failure stated", given == "none")
        else:
            count("failure, class stated", given not in ("none", "unknown"))
        if case.get("root_rank") is not None:
            count("root rank", answer.get("root_rank") == case["root_rank"])
        elif case.get("multi_rank"):
            count("no rank named where none is known", answer.get("root_rank") is None)
        if not is_right:
            misses.append(f"{case['id']}\t{label}\t{given}\t{case.get('title', '')}")
    return dict(sorted(tally.items())), misses


def read(path: pathlib.Path) -> list[dict[str, Any]]:
    rows = []
    for number, text in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
        if text.strip():
            try:
                row = json.loads(text)
                row["id"]
            except (ValueError, KeyError, TypeError) as problem:
                print(f"{path}:{number}: {problem!r}; an object with an id is expected", file=sys.stderr)
                raise SystemExit(65) from None
            rows.append(row)
    return rows


def main(arguments: Optional[list[str]] = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("answers", type=pathlib.Path)
    parser.add_argument("--cases", type=pathlib.Path, default=HERE / "cases.jsonl")
    parser.add_argument("--logs", type=pathlib.Path)
    parser.add_argument("--misses", action="store_true", help="list the cases with another class")
    options = parser.parse_args(arguments)
    truth = read(options.cases)
    if options.logs is not None:
        complete = {case["id"] for case in read(options.logs) if not case.get("missing")}
        truth = [case for case in truth if case["id"] in complete]
    answers = {answer["id"]: answer for answer in read(options.answers)}
    strange = sorted(set(answers) - {case["id"] for case in truth})
    if strange:
        print(f"{len(strange)} answers are to no case that is counted, the first to {strange[0]}", file=sys.stderr)
    tally, misses = figures(truth, answers)
    for figure, (right, of) in tally.items():
        low, high = wilson(right, of)
        print(f"{figure:36} {right:4} of {of:<4} {100 * right / of:6.1f} %  [{100 * low:.1f}, {100 * high:.1f}]")
    for miss in misses if options.misses else []:
        print(f"miss\t{miss}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
