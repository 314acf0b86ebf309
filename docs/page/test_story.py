"""The page of the story: pairs of lines, their numbers, and faults that stop the build."""

import unittest
from unittest import mock

import story
from test_page import GOOD, built

TOLD = {
    "src/apps/story.cpp": """// A story.
struct Story {
  void forward() {
    // The echo.
    twice(y_bcd, x_bcd, scale_d);  // (twice.1)
    twice_forward(plain, z_bcv, y_bcd);  // (echo.1)
  }
  void backward() {
    // The echo. It comes back, as (twice.2) says.
    twice_backward(plain, d_y_bcd, d_z_bcv);  // (twice.2)
    twice_backward(d_x_bcd, d_y_bcd, scale_d);  // (twice.1) (twice.2)
  }
};
""",
    "docs/story.md": "# A story\n\nOf [these numbers](story_example.txt).\n",
    "docs/story_example.txt": """window a |
targets  a|
alphabet  a|
loss 0.500
(twice.1)
y_bcd
   1.000  -2.000
  -0.000   0.500
(echo.1)
z_bcv
   3.000   4.000
   5.000   6.000
(twice.2)
d_y_bcd
  0.10000 -0.20000
  0.00000 -0.00001
(weights)
scale_d
   7.000   8.000
d_scale_d
  0.70000  0.80000
""",
}


ALL = GOOD | TOLD | {"docs/index.md": GOOD["docs/index.md"].replace("1. ", "1. [A story](story.md): It is told.\n1. ")}


def told(path: str = "src/apps/story.cpp", old: str = "", new: str = "") -> tuple[str, list[str]]:
    """The page of the story with one change, and its faults."""
    files = dict(ALL)
    assert old in files[path]
    files[path] = files[path].replace(old, new)
    with mock.patch.dict(story.FORWARD, twice="1"), mock.patch.dict(story.BACKWARD, twice="2"):
        written, faults = built(files)
    return written.get("story.html", ""), faults


class Page(unittest.TestCase):
    page: str

    @classmethod
    def setUpClass(cls) -> None:
        cls.page, cls.faults = told()

    def test_no_fault(self) -> None:
        self.assertEqual(self.faults, [])

    def test_a_line_stands_before_the_one_that_it_faces(self) -> None:
        order = [self.page.index(f'id="{place}"') for place in ("forward-twice.1", "forward-echo.1")]
        facing = [self.page.index(f"<pre class=\"call\">{call}") for call in ("twice_backward(d_x", "twice_backward(plain")]
        self.assertEqual(sorted(order + facing), [order[0], facing[0], order[1], facing[1]])

    def test_links(self) -> None:
        for link in ("layers/twice.html#twice.1", "blocks/echo.html#echo.1", "#L5"):
            self.assertIn(f'<a href="{link}">', self.page)
        for number in (4, 8):
            self.assertIn(f'<a href="layers/twice.html#p{number}">plain/twice.cpp:{number}</a>', self.page)

    def test_numbers(self) -> None:
        self.assertIn('<caption>y_bcd</caption><tr><th scope="row">a</th><td>1.000</td><td>−2.000</td></tr>', self.page)
        self.assertIn('<th scope="row">␣</th><td>0.000</td><td>0.500</td>', self.page)
        self.assertIn('<tr><td></td><th scope="col">␣</th><th scope="col">a</th></tr>', self.page)

    def test_weights_are_folded_in_on_both_sides(self) -> None:
        self.assertIn("<summary>scale_d</summary>", self.page)
        self.assertIn("<summary>d_scale_d</summary>", self.page)

    def test_what_backward_says_of_a_group(self) -> None:
        self.assertIn('<h2>The echo</h2>\n<p class="note">It comes back, as <a href="layers/twice.html#twice.2">', self.page)

    def test_the_first_page_of_all(self) -> None:
        with mock.patch.dict(story.FORWARD, twice="1"), mock.patch.dict(story.BACKWARD, twice="2"):
            files = built(ALL)[0]
        self.assertIn('rel="next" href="story.html"', files["index.html"])
        self.assertIn('rel="prev" href="story.html"', files["conventions.html"])
        self.assertIn('<a href="story.html">A story</a>: It is told.', files["index.html"])


class Faults(unittest.TestCase):
    def assert_fault(self, expected: str, path: str, old: str, new: str = "") -> None:
        faults = told(path, old, new)[1]
        self.assertTrue(any(expected in fault for fault in faults), f"{expected!r} is not in {faults}")

    def test_lists(self) -> None:
        code = "src/apps/story.cpp"
        last = "    twice_backward(d_x_bcd, d_y_bcd, scale_d);  // (twice.1) (twice.2)\n"
        self.assert_fault("forward has 2 lines, backward 1", code, last)
        self.assert_fault("thrice does not face twice, line 6", code, "twice_backward(plain", "thrice_backward(plain")
        self.assert_fault("story.cpp:5: is not a call with the tag", code, "scale_d);  // (twice.1)", "scale_d);")
        self.assert_fault("twice is no backward pass", code, "twice_backward(plain", "twice(plain")
        self.assert_fault("has no list forward", code, "void forward", "void forwards")
        self.assert_fault("the list backward does not end", code, "(twice.2)\n  }\n};\n", "(twice.2)")

    def test_equations(self) -> None:
        code = "src/apps/story.cpp"
        self.assert_fault("#echo.9 names no place", code, "(twice.1) (twice.2)", "(twice.1) (echo.9)")
        self.assert_fault("(thrice.1) refers to no layer", code, "(twice.1) (twice.2)", "(twice.1) (thrice.1)")
        self.assertIn("calls twice, which has no equation in story.py", built(ALL)[1][0])

    def test_order(self) -> None:
        self.assertIn("has 0 items for docs/story.md", built(GOOD | TOLD)[1][0])

    def test_numbers(self) -> None:
        numbers = "docs/story_example.txt"
        self.assert_fault("has no numbers of (echo.1)", numbers, "(echo.1)\nz_bcv\n   3.000   4.000\n   5.000   6.000\n")
        self.assert_fault("story_example.txt:7: is not what the example prints", numbers, "  -2.000", "  nan")


if __name__ == "__main__":
    unittest.main()
