"""The table and the plot of the peers' benchmark."""

from __future__ import annotations

import statistics
from html import escape
from typing import Any, Optional

GIB = 1 << 30


class Table:
    """Medians of what was measured, by method."""

    def __init__(self, rows: list[dict[str, Any]], failed: dict[str, str], state_bytes: int) -> None:
        self.rows, self.failed, self.bytes = rows, failed, state_bytes
        self.names = list(dict.fromkeys(row["method"] for row in rows))
        self.limits = {row["method"] for row in rows if row["limit"]}

    def values(self, name: str, what: str, first: bool = False) -> list[float]:
        """Of one method: the first rounds alone, or all others."""
        return list(self.by_round(name, what, first).values())

    def by_round(self, name: str, what: str, first: bool = False) -> dict[tuple[int, int, int], float]:
        """The same by turn and round; a round in which something was measured more than once has a number for each."""
        found: dict[tuple[int, int, int], float] = {}
        # What is done once in a run has no first round to leave out.
        once = what.startswith(("load", "wrong"))
        for row in self.rows:
            if (row["method"], row["what"]) == (name, what) and (once or (row["round"] == 0) == first):
                again = sum(key[:2] == (row["turn"], row["round"]) for key in found)
                found[row["turn"], row["round"], again] = row["value"]
        return found

    def median(self, name: str, what: str) -> Optional[float]:
        found = self.values(name, what)
        return statistics.median(found) if found else None

    def over(self, name: str, what: str, limit: str, of: str) -> str:
        """Median of the ratio to a limit in the same round."""
        ours, limits = self.by_round(name, what), self.by_round(limit, of)
        ratios = [value / limits[at] for at, value in ours.items() if at in limits]
        return f"{statistics.median(ratios):.2f}" if ratios else "-"

    def markdown(self, about: str) -> str:
        """The table, with the words that it needs."""
        head = ["method", "stall s", "p95 s", "over memcpy", "first stall s", "durable s", "over O_DIRECT", "CPU s/GiB"]
        head += ["memory x", "lost s", "slowest step x", "load cold s", "load warm s", "load on one s", "wrong"]
        lines = ["# Saves and loads, beside peers", "", about, "", _row(head), _row(["---"] * len(head))]
        for name in self.names:
            first = self.values(name, "stall", first=True)
            cpu = self.median(name, "cpu")
            wrong = self.values(name, "wrong tensors")
            is_copy = "memcpy" in name
            lines.append(
                _row(
                    [
                        f"*{name}*" if name in self.limits else name,
                        _number(self.median(name, "stall")),
                        _number(_most(self.values(name, "stall"))),
                        self.over(name, "stall", "memcpy (limit)", "stall"),
                        _number(first[0] if first else None),
                        "-" if is_copy else _number(self.median(name, "durable")),
                        "-" if is_copy else self.over(name, "durable", "O_DIRECT write (limit)", "durable"),
                        "-" if cpu is None else f"{cpu / (self.bytes / GIB):.2f}",
                        _number(next(iter(self.values(name, "memory", first=True)), None)),
                        _number(self.median(name, "lost")),
                        _number(self.median(name, "slowest step"), 1),
                        _number(next(iter(self.values(name, "load cold")), None)),
                        _number(next(iter(self.values(name, "load warm")), None)),
                        _number(next(iter(self.values(name, "load on one")), None)),
                        f"{int(max(wrong))}" if wrong else "-",
                    ]
                )
            )
        lines += [f"\n{name} did not run here: `{problem}`" for name, problem in self.failed.items()]
        lines += [
            "",
            "Stall: time the trainer is held, the slowest rank's. Durable: from the call until all is synced, files and",
            "folders, and the method says that it is over; a sync that the method leaves out is added. CPU: all ranks with",
            "their children, and daemons. Memory: the most over what there was before, of the first save, over the state's",
            "size; what an earlier method gave back to this process is used again and does not show. Load on one: a single",
            "rank loads, from the disk and into memory that nobody has touched, what all have saved.",
            "Lost: the stall and what the steps meanwhile were slower by. Ratios are medians of ratios within a round.",
            "Only rankguard and DCP can load on another number of ranks; only rankguard checks digests, on every load.",
            "",
        ]
        return "\n".join(lines)

    def svg(self) -> str:
        """Stall and time until durable, a pair of bars a method."""
        names = [name for name in self.names if self.median(name, "durable") is not None]
        widest = max([self.median(name, "durable") or 0.0 for name in names] + [1e-9])
        left, width, high = 260, 620, 44
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + width + 90} {high * len(names) + 60}" '
            'font-family="sans-serif" font-size="13">',
            '<rect width="100%" height="100%" fill="white"/>',
            f'<text x="{left}" y="22" fill="#b3401f">stall</text>',
            f'<text x="{left + 60}" y="22" fill="#4a6f9c">until durable</text>',
            f'<text x="{left + 170}" y="22">seconds, {self.bytes / GIB:.2f} GiB, medians</text>',
        ]
        for nth, name in enumerate(names):
            top = 40 + nth * high
            weight = "bold" if name.startswith("rankguard") else "normal"
            parts.append(f'<text x="{left - 10}" y="{top + 20}" text-anchor="end" font-weight="{weight}">{escape(name)}</text>')
            for row, (what, colour) in enumerate((("stall", "#b3401f"), ("durable", "#4a6f9c"))):
                value = self.median(name, what) or 0.0
                length, y = value / widest * width, top + row * 16
                parts.append(f'<rect x="{left}" y="{y}" width="{length:.1f}" height="13" fill="{colour}"/>')
                parts.append(f'<text x="{left + length + 6:.1f}" y="{y + 11}">{value:.2f}</text>')
        return "\n".join([*parts, "</svg>", ""])


def _most(values: list[float]) -> Optional[float]:
    """The 95th percentile: of fewer than twenty values the greatest."""
    return sorted(values)[max(0, -(-95 * len(values) // 100) - 1)] if values else None


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _number(value: Optional[float], digits: int = 2) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
