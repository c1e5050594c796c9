#!/usr/bin/env python3
"""Fetch the lines of the published cases from their sources.

usage: fetch.py [--cases cases.jsonl] [--out logs.jsonl] [--cache FOLDER]

A line is taken from its source only if its digest is that of the case, so that a source that has changed is noticed. A line
that was not found is empty in the output and listed in the case's `missing`. The output is what `rankguard classify` reads.

A token for api.github.com in GITHUB_TOKEN raises its limit of requests. Exit code 0: every case whose source has an address is
complete. 1: some are not; each is named. 64: wrong use. 65: a broken file of cases.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
from typing import Any, Optional

import lines
from sources import Sources, Unavailable

HERE = pathlib.Path(__file__).resolve().parent


def filled(case: dict[str, Any], candidates: list[str]) -> dict[str, Any]:
    """The case with the lines whose digests it has; the others are empty and listed as missing."""
    known: dict[str, str] = {}
    wanted = {digest for source in case["sources"] for digest in source["digests"]}
    for line in candidates:
        for form in lines.forms(line):
            digest = lines.digest(form)
            if digest in wanted:
                known[digest] = form
    known[lines.digest("")] = ""
    sources, missing = [], []
    for at, source in enumerate(case["sources"]):
        kept = {name: value for name, value in source.items() if name != "digests"}
        missing += [[at, line] for line, digest in enumerate(source["digests"]) if digest not in known]
        sources.append({**kept, "lines": [known.get(digest, "") for digest in source["digests"]]})
    return {**case, "sources": sources, "missing": missing}


def read(path: pathlib.Path) -> list[dict[str, Any]]:
    cases = []
    for number, text in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
        if not text.strip():
            continue
        try:
            case = json.loads(text)
            named = (case["id"], case["source"], [stream["digests"] for stream in case["sources"]])
        except (ValueError, KeyError, TypeError) as problem:
            print(f"{path}:{number}: not a published case: {problem!r}; publish.py writes them", file=sys.stderr)
            raise SystemExit(65) from None
        if not all(isinstance(digests, list) for digests in named[2]):
            print(f"{path}:{number}: digests: a list of texts is expected; publish.py writes it", file=sys.stderr)
            raise SystemExit(65)
        cases.append(case)
    return cases


def main(arguments: Optional[list[str]] = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=pathlib.Path, default=HERE / "cases.jsonl")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("logs.jsonl"))
    parser.add_argument("--cache", type=pathlib.Path, default=pathlib.Path("~/.cache/rankguard/failure-logs").expanduser())
    parser.add_argument("--files", default="https://raw.githubusercontent.com", help="a mirror of the files")
    parser.add_argument("--threads", default="https://api.github.com", help="a mirror of the threads")
    parser.add_argument("--pause", type=float, default=0.2, help="seconds between two requests")
    options = parser.parse_args(arguments)
    sources = Sources(options.cache, options.files, options.threads, options.pause)
    complete, without, others, written = 0, [], [], []
    for case in read(options.cases):
        try:
            made = filled(case, sources.lines_of(case["source"]))
        except Unavailable as problem:
            (without if case["source"] is None else others).append(f"{case['id']}: {problem}")
            continue
        if made["missing"]:
            count = sum(len(source["lines"]) for source in made["sources"])
            others.append(f"{case['id']}: {len(made['missing'])} of {count} lines are not in {case['source']}")
        else:
            complete += 1
        written.append(made)
    with open(options.out, "w", encoding="utf-8") as out:
        out.writelines(json.dumps(case, ensure_ascii=False) + "\n" for case in written)
    for problem in others:
        print(problem, file=sys.stderr)
    print(f"{options.out}: {complete} cases complete, {len(others)} not, {len(without)} have a source without an address")
    return 1 if others else 0


if __name__ == "__main__":
    sys.exit(main())
