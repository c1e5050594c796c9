#!/usr/bin/env python3
"""Make a collection of labelled logs public: labels, addresses and digests of lines, without the lines.

usage: publish.py LABELLED.jsonl > cases.jsonl

The format of LABELLED.jsonl is in README.md. Nothing of a line is left but its digest, since most sources have no licence
that permits a copy.
"""

from __future__ import annotations

import json
import pathlib
import sys
from typing import Any

import lines
import sources


def published(case: dict[str, Any]) -> dict[str, Any]:
    """The case with the digests of its lines in the place of the lines; its source is null without an address."""
    streams = []
    for stream in case["sources"]:
        kept = {name: value for name, value in stream.items() if name != "lines"}
        streams.append({**kept, "digests": [lines.digest(line) for line in stream["lines"]]})
    address = case["source"] if sources.has_address(case["source"]) else None
    kept = {name: value for name, value in case.items() if name != "via"}
    return {**kept, "source": address, "sources": streams}


def main(arguments: list[str]) -> int:
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 64
    for number, text in enumerate(pathlib.Path(arguments[0]).read_text(encoding="utf-8").split("\n"), 1):
        if not text.strip():
            continue
        try:
            print(json.dumps(published(json.loads(text)), ensure_ascii=False))
        except (ValueError, KeyError, TypeError) as problem:
            print(f"{arguments[0]}:{number}: not a labelled case: {problem!r}; see README.md for its fields", file=sys.stderr)
            return 65
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
