"""Reads traces of kernels (docs/kernels/*/*.trace), which cuda/emulator/record.cpp writes, and computes the cost of
events.

The rules repeat those of cuda/emulator/requests.hpp, because the tables of the chapters are counted there. A test
compares both.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

SECTOR, WORD, BANKS, LANES, PHASE = 32, 4, 32, 32, 128
EVENT = re.compile(r"(\w)(\d+)(?:/([0-9a-f]+))?(?: (.*))?")
ACCESSES = "rwRW"


def expand(words: list[str]) -> list[str]:
    """Expands "a b*3" to a b b b."""
    found: list[str] = []
    for word in words:
        value, _, times = word.partition("*")
        found += [value] * int(times or 1)
    return found


@dataclass
class Event:
    """A memory request (r, w: global; R, W: shared), a shuffle x, a vote v, a matrix product m, or a barrier b or y."""

    kind: str
    site: int
    warp: int
    lanes: list[int]
    at: dict[int, int] = field(default_factory=dict)  # byte offset per lane; for a shuffle the source lane
    bytes: int = 0
    values: list[str] = field(default_factory=list)  # recorded values; the trace may omit them

    @property
    def is_access(self) -> bool:
        return self.kind in ACCESSES

    def pieces(self, size: int, lanes: list[int] | None = None) -> set[int]:
        """Numbers of the pieces of memory, `size` bytes each, that the lanes access."""
        return {
            piece
            for lane in (self.lanes if lanes is None else lanes)
            for piece in range(self.at[lane] // size, (self.at[lane] + self.bytes - 1) // size + 1)
        }

    def passes(self) -> list[int]:
        """Passes per phase of a shared-memory request: the largest number of words that one bank delivers."""
        each = LANES if self.bytes <= WORD else PHASE // self.bytes
        found = []
        for first in range(0, LANES, each):
            lanes = [lane for lane in self.lanes if first <= lane < first + each]
            if lanes:
                found.append(max(Counter(word % BANKS for word in self.pieces(WORD, lanes)).values()))
        return found


@dataclass
class Costs:
    """Sums over events."""

    requests: int = 0
    bytes: int = 0
    sectors: int = 0
    needed: int = 0  # least number of sectors that could hold the distinct bytes requested
    shared: int = 0
    conflicts: int = 0
    waits: int = 0

    def add(self, event: Event) -> None:
        if event.kind in "rw":
            self.requests += 1
            self.bytes += event.bytes * len(event.lanes)
            self.sectors += len(event.pieces(SECTOR))
            self.needed += -(-len(event.pieces(1)) // SECTOR)
        elif event.kind in "RW":
            passes = event.passes()
            self.shared += len(passes)
            self.conflicts += sum(passes) - len(passes)
        else:
            self.waits += 1


class Trace:
    """One trace: arrays, places in the source, and the events per launch, block and warp."""

    def __init__(self, text: str) -> None:
        self.sites: list[list[tuple[str, int]]] = []
        self.arrays: list[list[str]] = []
        self.launches: list[list[dict[int, list[Event]]]] = []
        warp = 0
        for line in text.splitlines():
            word, _, rest = line.partition(" ")
            if word == "site":
                self.sites.append([(one.rpartition(":")[0], int(one.rpartition(":")[2])) for one in rest.split(">")])
            elif word == "array":
                self.arrays.append(rest.partition(" : ")[0].split(" "))
            elif word == "launch":
                self.launches.append([])
            elif word == "block":
                self.launches[-1].append({w: [] for w in range(-(-int(rest.split()[7]) // LANES))})
            elif word == "warp":
                warp = int(rest)
            elif found := re.fullmatch(EVENT, line):
                self.launches[-1][-1][warp].append(self._event(warp, *found.groups()))

    @staticmethod
    def _event(warp: int, kind: str, site: str, mask: str | None, rest: str | None) -> Event:
        lanes = [lane for lane in range(LANES) if int(mask or "ffffffff", 16) >> lane & 1]
        event, words = Event(kind, int(site), warp, lanes), (rest or "").split()
        if kind in "xv":
            words.pop(0)
        if kind in ACCESSES + "x":
            event.at = Trace._at(lanes, words.pop(0))
        if event.is_access:
            event.bytes = int(words.pop(0))
        if words and words[0][0] not in "=+":
            event.values = expand(words[words[0] == "!" :])
        return event

    @staticmethod
    def _at(lanes: list[int], text: str) -> dict[int, int]:
        """Byte offset per lane: the first offset and the steps between lanes, or ^16: the lane number XOR 16."""
        if text[0] == "^":
            return {lane: lane ^ int(text[1:]) for lane in lanes}
        at, *steps = expand(text.split(","))
        found, total = {}, int(at)
        for lane, step in zip(lanes, ["0", *steps], strict=True):
            total += int(step)
            found[lane] = total
        return found

    def events(self) -> Iterator[Event]:
        for launch in self.launches:
            for block in launch:
                for events in block.values():
                    yield from events

    def has_moment(self, launch: int, block: int, warp: int, step: int) -> bool:
        try:
            return step < len(self.launches[launch][block][warp])
        except (IndexError, KeyError):
            return False

    def by_line(self) -> dict[tuple[str, int], Costs]:
        """Costs per line of the source: the line in the outermost function."""
        found: dict[tuple[str, int], Costs] = {}
        for event in self.events():
            found.setdefault(self.sites[event.site][0], Costs()).add(event)
        return dict(sorted(found.items()))

    def sources(self) -> set[str]:
        return {path for site in self.sites for path, _ in site}


def traces(root: Path, folder: str) -> dict[str, str]:
    """Traces of an operation by name, as in the repository."""
    return {path.stem: path.read_text(encoding="utf-8") for path in sorted((root / folder).glob("*.trace"))}
