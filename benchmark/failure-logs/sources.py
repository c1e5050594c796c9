"""Texts of the addresses that cases name: files of public repositories at a commit, and threads of issues."""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Optional

import lines

#: The largest answer that is read, bytes.
ANSWER_MAX = 64 << 20
#: Pages of comments of one thread, of 100 each.
PAGES_MAX = 20
_FILE = re.compile(r"^https://github\.com/([^/]+/[^/]+)/blob/([0-9a-f]{40})/([^#]+?)(?:#L(\d+)(?:-L(\d+))?)?$")
_THREAD = re.compile(r"^([\w.-]+/[\w.-]+)#(\d+)$")


def has_address(source: str) -> bool:
    """Whether a source is a file at a commit, or a thread."""
    return bool(_FILE.match(source) or _THREAD.match(source))


class Unavailable(Exception):
    """A source that cannot be had, with the reason."""


class Sources:
    """Texts of addresses, each fetched once and kept in a folder."""

    def __init__(self, cache: pathlib.Path, files: str, threads: str, pause: float) -> None:
        self._cache, self._files, self._threads, self._pause = cache, files, threads, pause
        self._failed: dict[str, str] = {}
        cache.mkdir(parents=True, exist_ok=True)

    def lines_of(self, source: Optional[str]) -> list[str]:
        """The lines that a case of this source may have, the likeliest last."""
        if found := _FILE.match(source or ""):
            repository, commit, path, first, last = found.groups()
            # The address has the path as in a browser, quoted where it must be.
            address = f"{self._files}/{repository}/{commit}/{urllib.parse.quote(urllib.parse.unquote(path))}"
            text = lines.split(self._text(address))
            if first is None:
                return text
            wanted = text[int(first) - 1 : int(last or first)]
            return text + wanted
        if found := _THREAD.match(source or ""):
            return self._thread(*found.groups())
        raise Unavailable("its source has no address")

    def _thread(self, repository: str, number: str) -> list[str]:
        address = f"{self._threads}/repos/{repository}/issues/{number}"
        bodies = [json.loads(self._text(address)).get("body") or ""]
        for page in range(1, PAGES_MAX + 1):
            comments = json.loads(self._text(f"{address}/comments?per_page=100&page={page}"))
            bodies += [comment.get("body") or "" for comment in comments]
            if len(comments) < 100:
                break
        return [line for body in bodies for line in lines.split(body)]

    def _text(self, address: str) -> str:
        kept = self._cache / hashlib.sha256(address.encode()).hexdigest()
        if kept.exists():
            return kept.read_bytes().decode("utf-8", errors="replace")
        if address in self._failed:
            raise Unavailable(self._failed[address])
        request = urllib.request.Request(address, headers={"User-Agent": "rankguard-benchmark"})
        token = os.environ.get("GITHUB_TOKEN")
        if token and address.startswith("https://api.github.com/"):
            request.add_header("Authorization", f"Bearer {token}")
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                data = answer.read(ANSWER_MAX + 1)
        except (urllib.error.URLError, OSError) as problem:
            self._failed[address] = f"{address}: {problem}"
            raise Unavailable(self._failed[address]) from problem
        if len(data) > ANSWER_MAX:
            raise Unavailable(f"{address}: more than {ANSWER_MAX >> 20} MiB")
        part = kept.with_suffix(".part")
        part.write_bytes(data)
        part.replace(kept)
        time.sleep(self._pause)
        return data.decode("utf-8", errors="replace")
