"""Digests of log lines, and the forms of a source's line that a case may have kept."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator

_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_QUOTE = re.compile(r"^(?:> ?)+")
# Marks of comments and numbers of editors at the start of a line.
_COMMENT = re.compile(r"^\s*(?:#|//|\*)\s?")
_NUMBER = re.compile(r"^\s*\d+\s*[|:]\s?")


def digest(line: str) -> str:
    """The first 64 bits of the line's SHA-256, as 16 hex digits."""
    return hashlib.sha256(line.encode()).hexdigest()[:16]


def forms(line: str) -> Iterator[str]:
    """The line as it stands in its source, then as a case may have it.

    Colour codes are removed, of a line that was drawn again the last state is left, and marks of quotes, comments and
    editors and the common indentation are cut.
    """
    plain = _COLOUR.sub("", line)
    shown = [part for part in plain.split("\r") if part]
    for base in dict.fromkeys([line, plain, shown[-1] if shown else "", _QUOTE.sub("", plain)]):
        for cut in dict.fromkeys([base, _COMMENT.sub("", base), _NUMBER.sub("", base)]):
            yield cut
            yield cut.rstrip()
            indented = len(cut) - len(cut.lstrip())
            for column in range(1, indented + 1):
                yield cut[column:]
                yield cut[column:].rstrip()


def split(text: str) -> list[str]:
    """The lines of a text; a carriage return within a line ends none."""
    return text.replace("\r\n", "\n").split("\n")
