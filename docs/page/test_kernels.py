"""Tests of the kernel pages: costs counted by hand, traces, links to moments, and the page without script."""

from __future__ import annotations

import re
import unittest
from pathlib import Path
from unittest import mock

import kernel_pages
import kernel_traces
from kernel_traces import Costs, Event, Trace, expand

ROOT = Path(__file__).resolve().parents[2]


def access(kind: str, first: int, step: int, size: int, lanes: range = range(32)) -> Event:
    return Event(kind, 0, 0, list(lanes), {lane: first + lane * step for lane in lanes}, size)


# Name, event, and the sectors, or else phases and conflicts.
BY_HAND = [
    ("an aligned row", access("r", 256, 4, 4), (4,)),
    ("a row that is not aligned", access("r", 260, 4, 4), (5,)),
    ("every other number", access("r", 0, 8, 4), (8,)),
    ("every 33rd number", access("r", 0, 132, 4), (32,)),
    ("one number for all", access("r", 4, 0, 4), (1,)),
    ("bf16", access("r", 0, 2, 2), (2,)),
    ("bf16, not aligned", access("w", 2, 2, 2), (3,)),
    ("8 bytes a lane", access("w", 8, 8, 8), (9,)),
    ("16 bytes a lane", access("w", 0, 16, 16), (16,)),
    ("eight lanes", access("r", 0, 4, 4, range(8)), (1,)),
    ("words side by side", access("R", 0, 4, 4), (1, 0)),
    ("one word for all", access("R", 0, 0, 4), (1, 0)),
    ("bf16 in two banks", access("R", 0, 64, 2), (1, 15)),
    ("8 bytes of every 16", access("R", 0, 16, 8), (2, 2)),
    ("16 bytes side by side", access("R", 0, 16, 16), (4, 0)),
    ("16 bytes of every 32", access("W", 0, 32, 16), (4, 4)),
    ("16 bytes of every 80", access("W", 0, 80, 16), (4, 0)),
    ("16 bytes in four banks", access("W", 0, 128, 16), (4, 28)),
    ("eight lanes of 16 bytes", access("W", 0, 16, 16, range(8)), (1, 0)),
]


def cost_of(event: Event) -> tuple[int, ...]:
    cost = Costs()
    cost.add(event)
    return (cost.sectors,) if event.kind in "rw" else (cost.shared, cost.conflicts)


class Requests(unittest.TestCase):
    def test_costs_are_those_counted_by_hand(self) -> None:
        for name, event, expected in BY_HAND:
            with self.subTest(name):
                self.assertEqual(cost_of(event), expected)
        for stride in range(1, 34):
            with self.subTest(stride=stride):
                shared = stride & -stride if stride < 32 else 32 if stride == 32 else 1
                self.assertEqual(cost_of(access("R", 0, 4 * stride, 4)), (1, shared - 1))

    def test_an_off_by_one_in_the_grouping_is_noticed(self) -> None:
        for name, value in (("PHASE", 144), ("BANKS", 33), ("BANKS", 31), ("SECTOR", 33), ("WORD", 5)):
            with self.subTest(name, value=value), mock.patch.object(kernel_traces, name, value):
                self.assertGreater(sum(cost_of(event) != expected for _, event, expected in BY_HAND), 2)


class Recorded(unittest.TestCase):
    """Traces of the repository."""

    def of(self, name: str) -> Trace:
        return kernel_pages.levels(ROOT, "basics")[name]

    def costs(self, name: str) -> Costs:
        total = Costs()
        for event in self.of(name).events():
            total.add(event)
        return total

    def test_a_transposition_with_32_has_conflicts_and_one_with_33_none(self) -> None:
        for name, conflicts in (("transpose_32", 32 * 31), ("transpose_33", 0)):
            cost = self.costs(name)
            self.assertEqual((cost.requests, cost.sectors, cost.shared, cost.conflicts), (64, 256, 64, conflicts), name)

    def test_the_first_row_has_four_sectors_and_the_others_five(self) -> None:
        trace = self.of("unaligned_rows")
        sectors = [[len(event.pieces(32)) for event in trace.launches[0][0][warp]] for warp in range(4)]
        self.assertEqual(sectors, [[4, 4], [5, 5], [5, 5], [5, 5]])

    def test_phases(self) -> None:
        passes = [event.passes() for event in self.of("phases").events() if event.kind in "RW"]
        self.assertEqual(passes, [[1] * 4, [1] * 4, [2] * 4, [1] * 4])

    def test_a_missing_barrier_reads_what_nobody_has_written(self) -> None:
        def values(name: str) -> list[str]:
            return [value for event in self.of(name).events() if event.kind == "R" for value in event.values]

        self.assertIn("nan", values("missing_barrier"))
        self.assertNotIn("nan", values("missing_barrier_corrected"))
        text = kernel_traces.traces(ROOT, "docs/kernels/basics")["divergent_barrier"]
        self.assertRegex(text, r"\nfault emulator: .*divergent barrier.*broken_kernels\.hpp:\d+.*broken_kernels\.hpp:\d+")

    def test_costs_of_whole_traces_are_those_of_the_tables(self) -> None:
        """The emulator has counted the tables. The traces of these two operations contain every block."""
        for operation in ("layernorm", "embedding_gradient"):
            chapter = (ROOT / kernel_pages.chapter_of(operation)).read_text(encoding="utf-8")
            for level, trace in kernel_pages.levels(ROOT, operation).items():
                total = Costs()
                for event in trace.events():
                    total.add(event)
                row = next(line for line in chapter.splitlines() if line.startswith(f"| {level} |")).split(" | ")
                counted = (len(trace.launches), total.requests, total.bytes, total.sectors, total.shared, total.conflicts)
                self.assertEqual([int(cell) for cell in row[2:8]], list(counted), f"{operation} {level}")

    def test_every_line_of_a_trace_is_one_of_its_source(self) -> None:
        for operation in kernel_pages.operations(ROOT):
            for level, trace in kernel_pages.levels(ROOT, operation).items():
                for event in trace.events():
                    path, line = trace.sites[event.site][0]
                    self.assertLessEqual(line, len((ROOT / path).read_text(encoding="utf-8").splitlines()), (operation, level))

    def test_gpu_listings_have_the_costs_of_production_kernels(self) -> None:
        for path, level in (("cuda/layernorm_rows.hpp", "layernorm_backward"), ("cuda/pooling_one_tile.hpp", "pooling")):
            table = kernel_pages.costs_of_file(ROOT, path, "layers/x.html")
            self.assertIn(f'href="../kernels/production.html#level={level}"', table)
            costs = kernel_pages.levels(ROOT, "production")[level].by_line()
            rows = re.findall(r"<tr><th>(\d+)</th><td>(\d*)</td>", table.split(f"#level={level}")[1].split("</table>")[0])
            expected = [(str(line), str(cost.requests or "")) for (where, line), cost in costs.items() if where == path]
            self.assertTrue(expected)
            self.assertEqual(rows, expected)
        self.assertEqual(kernel_pages.costs_of_file(ROOT, "cuda/adamw.cu", "layers/x.html"), "")

    def test_size(self) -> None:
        self.assertEqual(kernel_pages.faults(ROOT, {}), [])


class Pages(unittest.TestCase):
    def test_runs(self) -> None:
        self.assertEqual(expand(["1", "2*3", "nan*2"]), ["1", "2", "2", "2", "nan", "nan"])
        self.assertEqual(Trace._at([0, 1, 4, 5], "^4"), {0: 4, 1: 5, 4: 0, 5: 1})
        self.assertEqual(Trace._at([0, 1, 2], "8,4,-12"), {0: 8, 1: 12, 2: 0})

    def test_a_link_to_a_moment_that_is_not_there_is_a_fault(self) -> None:
        for fragment, fault in (
            ("level=2&step=3", None),
            ("level=1&step=0&beside=2", None),
            ("level=7", "names no kernel"),
            ("level=2&beside=7", "names no kernel"),
            ("level=2&step=99999", "names no moment of its kernel"),
            ("level=2&block=9", "names no moment of its kernel"),
            ("level=2&stp=3", "names no kernel"),
        ):
            with self.subTest(fragment):
                self.assertEqual(kernel_pages.moment_fault(ROOT, "kernels/layernorm.html", fragment), fault)
        found = kernel_pages.faults(ROOT, {"docs/a.html": '<a href="../kernels/layernorm.html#level=7&amp;step=1">x</a>'})
        self.assertEqual(found, ["docs/a.html: the link ../kernels/layernorm.html#level=7&step=1 names no kernel"])

    def test_without_script_there_is_a_picture_and_the_costs(self) -> None:
        for operation in kernel_pages.operations(ROOT):
            with self.subTest(operation):
                self.assertRegex(kernel_pages.viewer(ROOT, operation), r"<svg .*<title>One moment: ")
                costs = kernel_pages.costs(ROOT, operation)
                self.assertEqual(costs.count("<details"), len(kernel_pages.levels(ROOT, operation)))

    def test_titles(self) -> None:
        self.assertEqual(kernel_pages.title_of(ROOT, "layernorm", "level_2"), "2: one warp per row")
        self.assertEqual(kernel_pages.title_of(ROOT, "production", "layernorm_forward"), "layernorm forward")

    def test_the_script_fetches_nothing(self) -> None:
        for part in kernel_pages.PARTS:
            text = (ROOT / f"docs/page/kernels/{part}.js").read_text(encoding="utf-8")
            self.assertIsNone(re.search(r"fetch\(|XMLHttpRequest|https?:|import\(", text))


if __name__ == "__main__":
    unittest.main()
