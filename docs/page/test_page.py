"""The generator, on a repository of one layer and one block: its pages, and the faults that it finds."""

import html
import posixpath
import re
import sys
import tempfile
import types
import unittest
from collections.abc import Callable
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parent))

import check  # noqa: E402
import generate  # noqa: E402
import listing  # noqa: E402
import sources  # noqa: E402
from fault import Fault  # noqa: E402

LONG_LINE = "// " + "x" * 116 + "\n"

GOOD = {
    "README.md": """# A project

What it is.

## Read it

1. [twice](docs/layers/twice.md), [its header](src/layers/twice.hpp), [echo](docs/blocks/echo.md)

## Licence
""",
    "docs/index.md": """# A project

What it is.

1. [Conventions](conventions.md): What a prime is.
2. [twice](layers/twice.md): Everything is doubled, in
   one line.

- [echo](blocks/echo.md): It says so.
""",
    "docs/conventions.md": "# Conventions\n\nA prime is $d'$.\n",
    "docs/layers/twice.md": """# twice

It doubles: every number of a row. Not (twice.2).

## Forward

```math
\\mathrm{out}_d = 2\\,\\mathrm{in}_d \\qquad \\text{(twice.1)}
```

As $`\\mathrm{in}_d`$ is real, nothing is lost.

```math
\\mathrm{d\\_in}_d = 2\\,\\mathrm{d\\_out}_d \\qquad \\text{(twice.2)}
```
""",
    "docs/blocks/echo.md": """# echo

Says it twice.

```math
\\mathrm{out}_d = \\mathrm{twice}(\\mathrm{in}_d) \\qquad \\text{(echo.1)}
```
""",
    "src/layers/twice.hpp": """// Doubles every number of a row. See
// docs/layers/twice.md.
//
//   out_d = 2 in_d                 (twice.1)
//   d_in_d = 2 d_out_d             (twice.2)
void twice_forward(Device&, T* out_d, const T* in_d, Index D);
""",
    "src/blocks/echo.hpp": """//   out_d = twice(in_d)            (echo.1)
class EchoBlock : public Block<Device, T> {
  void forward(Device& device, T* out_d, const T* in_d) override {
    twice_forward<Device, T>(device, out_d, in_d, D_);  // (echo.1)
  }
};
""",
    "tests/layers/test_twice.cpp": "",
    "plain/twice.cpp": """template <class Device, class T>
void twice_forward(Device&, T* out_d, const T* in_d, Index D) {
  for (Index d = 0; d < D; ++d) {
    out_d[d] = 2 * in_d[d];  // (twice.1)
  }
}
void twice_backward(Device&, T* d_in_d, const T* d_out_d, Index D) {
  for (Index d = 0; d < D; ++d) d_in_d[d] = 2 * d_out_d[d];  // (twice.2)
}
""",
}
for folder, end in (("cpu", "cpp"), ("cuda", "cu")):
    GOOD[f"{folder}/twice.{end}"] = GOOD["plain/twice.cpp"]


def picture(page: str, after: str, svg: str, caption: str = "") -> types.SimpleNamespace:
    """The attributes of a picture that the generator uses."""
    return types.SimpleNamespace(name="p", page=page, after=after, caption=caption, script="", draw=lambda: svg)


def built(
    files: dict[str, str], pictures: list | None = None, scripts: dict[str, str] | None = None
) -> tuple[dict[str, str], list[str]]:
    """The site of a repository with these files, and its faults. A fault that stops the build is the only one."""
    with tempfile.TemporaryDirectory() as folder:
        for path, text in files.items():
            file = Path(folder, path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        try:
            return generate.build(Path(folder), pictures or [], lambda characters: b"", scripts or {})
        except Fault as fault:
            return {}, [str(fault)]


class Faults(unittest.TestCase):
    """Each test plants one fault; the message must name it."""

    def assert_fault(self, expected: str, path: str, change: Callable[[str], str] | str, by: str = "") -> None:
        files = dict(GOOD)
        files[path] = change(files[path]) if callable(change) else files.get(path, "").replace(change, by)
        if path in GOOD:
            self.assertNotEqual(files[path], GOOD[path], "nothing was changed")
        faults = built(files)[1]
        self.assertTrue(any(expected in fault for fault in faults), f"{expected!r} is not in {faults}")

    def test_none(self) -> None:
        self.assertEqual(built(GOOD)[1], [])

    def test_equation_without_line_on_a_device(self) -> None:
        self.assert_fault("(twice.1) has no line", "cpu/twice.cpp", "// (twice.1)")

    def test_line_without_equation(self) -> None:
        self.assert_fault("cuda/twice.cu:4: (twice.3) is no equation", "cuda/twice.cu", "// (twice.1)", "// (twice.1) (twice.3)")

    def test_equation_missing_in_chapter(self) -> None:
        self.assert_fault("lacks the equation (twice.2)", "docs/layers/twice.md", "\\qquad \\text{(twice.2)}")

    def test_tag_twice(self) -> None:
        self.assert_fault("(twice.1) is the tag of 2 equations", "docs/layers/twice.md", "\\text{(twice.2)}", "\\text{(twice.1)}")

    def test_reference_to_no_equation(self) -> None:
        self.assert_fault("(twice.7) refers to no equation", "docs/layers/twice.md", "Not (twice.2)", "Not (twice.7)")

    def test_reference_to_no_layer(self) -> None:
        self.assert_fault("(thrice.1)", "docs/layers/twice.md", "Not (twice.2)", "Not (thrice.1)")

    def test_tag_in_another_chapter(self) -> None:
        self.assert_fault("(twice.1) belongs to another chapter", "docs/blocks/echo.md", "(echo.1)", "(twice.1)")

    def test_unknown_command(self) -> None:
        self.assert_fault("docs/layers/twice.md:7", "docs/layers/twice.md", "2\\,\\mathrm{in}_d", "\\twice{in}")

    def test_unclosed_brace_in_line(self) -> None:
        self.assert_fault("docs/layers/twice.md", "docs/layers/twice.md", "$`\\mathrm{in}_d`$", "$`\\mathrm{in_d`$")

    def test_dollar_left(self) -> None:
        self.assert_fault("a $ is left", "docs/layers/twice.md", "It doubles", "It costs $2 and doubles")

    def test_tex_left(self) -> None:
        self.assert_fault("TeX is left", "docs/layers/twice.md", "nothing", "\\mathrm nothing")

    def test_unclosed_fence(self) -> None:
        self.assert_fault("a fence is not closed", "docs/layers/twice.md", lambda text: text.rstrip().removesuffix("```") + "\nand so on\n")

    def test_dead_link(self) -> None:
        self.assert_fault("docs/layers/gone.md: is linked to", "docs/layers/twice.md", "It doubles", "It [doubles](gone.md)")

    def test_dead_fragment(self) -> None:
        self.assert_fault("#backward names no place", "docs/layers/twice.md", "It doubles", "It [doubles](#backward)")

    def test_double_id(self) -> None:
        self.assert_fault("the id forward occurs twice", "docs/layers/twice.md", lambda text: text + "\n## Forward\n")

    def test_unnamed_image(self) -> None:
        files = dict(GOOD, **{"docs/layers/x.svg": "<svg></svg>"})
        files["docs/layers/twice.md"] = GOOD["docs/layers/twice.md"].replace("It doubles", "![](x.svg) It doubles")
        self.assertEqual(built(files)[1], ["layers/twice.html: an image has no alt text"])

    def test_listing_without_the_line_of_an_equation(self) -> None:
        def nothing(source: sources.Source, number: int, context: int) -> set[int]:
            return {1, 8}

        files = GOOD | {"cuda/twice.cu": GOOD["cuda/twice.cu"] + LONG_LINE * 2_500}
        self.assertFalse([fault for fault in built(files)[1] if "listing" in fault])
        with mock.patch.object(sources.Source, "surroundings", nothing):
            self.assertIn("layers/twice.html: the listing of cuda has no line of equation 1", built(files)[1])

    def test_page_too_large(self) -> None:
        self.assert_fault("bytes, more than 300000", "cpu/twice.cpp", lambda text: text + LONG_LINE * 2_500)

    def test_chapter_not_in_the_order_of_reading(self) -> None:
        self.assert_fault("has 0 items for docs/blocks/echo.md", "docs/index.md", "- [echo](blocks/echo.md): It says so.")
        self.assert_fault("has 0 items for docs/conventions.md", "docs/index.md", "1. [Conventions]", "[Conventions]")

    def test_chapter_twice_in_the_order_of_reading(self) -> None:
        self.assert_fault("has 2 items for docs/layers/twice.md", "docs/index.md", "[echo]", "[again](layers/twice.md): Yes.\n- [echo]")

    def test_page_without_a_sentence_in_the_index(self) -> None:
        self.assert_fault("has no sentence for docs/blocks/echo.md", "docs/index.md", ": It says so.")
        self.assert_fault("has no sentence for docs/layers/twice.md", "docs/index.md", "one line.", "one line")

    def test_block_line_that_calls_nothing(self) -> None:
        self.assert_fault("(echo.1) calls no layer", "src/blocks/echo.hpp", "twice_forward<Device, T>", "something")

    def test_unclosed_element(self) -> None:
        self.assert_fault("closes <details>", "docs/layers/twice.md", lambda text: text + "\n<details>\n<summary>More</summary>\n\nmore\n")

    def test_document_that_no_page_links_to(self) -> None:
        for path in ("docs/more.md", "extras/steps/README.md", "extras/steps/more.md"):
            self.assertEqual(built(GOOD | {path: "# More\n"})[1], [f"{path}: no page links to this document"])

    def test_page_that_no_page_links_to(self) -> None:
        files = built(GOOD)[0]
        files["docs/more.html"] = files["conventions.html"]
        self.assertIn("docs/more.html: no page links to this one", check.site_faults(files, 0))
        files["docs/more.html"] += '<a href="more.html">Again</a>'
        self.assertIn("docs/more.html: no page links to this one", check.site_faults(files, 0))

    def test_fold_whose_markdown_is_not_read(self) -> None:
        for begins in ("<details>\n<summary>More</summary>\n", "<details>\n\n", "<details open>\n<summary>More</summary>\n\n"):
            fold = f"\n{begins}*Why*.\n\n</details>\n"
            self.assert_fault("docs/layers/twice.md:17: a fold begins with", "docs/layers/twice.md", lambda text, fold=fold: text + fold)

    def test_equation_in_a_fold(self) -> None:
        def folded(text: str) -> str:
            before, equation = text.split("```math\n", 1)
            equation = equation.replace("```", "```\n\n</details>", 1)
            return f"{before}<details>\n<summary>More</summary>\n\n```math\n{equation}"

        self.assert_fault("layers/twice.html: the equation (twice.1) is in a fold", "docs/layers/twice.md", folded)

    def test_link_of_another_page_into_a_fold(self) -> None:
        fold = "\n<details>\n<summary>More</summary>\n\n### Why\n\nSo. [Again](#why).\n\n</details>\n\n### Behind\n"
        files = GOOD | {"docs/layers/twice.md": GOOD["docs/layers/twice.md"] + fold}
        files["docs/blocks/echo.md"] += "\n[Behind](../layers/twice.md#behind).\n"
        self.assertEqual(built(files)[1], [])
        files["docs/blocks/echo.md"] += "\n[Why](../layers/twice.md#why).\n"
        self.assertEqual(built(files)[1], ["blocks/echo.html: the link ../layers/twice.html#why leads into a fold"])

    def test_picture_under_no_heading(self) -> None:
        self.assertIn("has no heading 'Backward'", built(GOOD, [picture("layers/twice", "Backward", "<svg></svg>")])[1][0])

    def test_unnamed_picture(self) -> None:
        faults = built(GOOD, [picture("layers/twice", "Forward", "<svg></svg>")])[1]
        self.assertIn("layers/twice.html: a <svg> has no name", faults)

    def test_picture_of_no_page(self) -> None:
        self.assertIn("the picture p", built(GOOD, [picture("layers/thrice", "", "<svg></svg>")])[1][0])

    def test_picture_on_a_page_that_is_linked_to(self) -> None:
        drawn = [picture("docs/more", "More", "<svg><title>More</title></svg>")]
        files = GOOD | {"docs/more.md": "# More\n"}
        self.assertIn("the picture p", built(files, drawn)[1][0])
        files["docs/conventions.md"] += "\n[More](more.md)\n"
        pages, faults = built(files, drawn)
        self.assertEqual(faults, [])
        self.assertIn("<title>More</title></svg>", pages["docs/more.html"])

    def test_scripts_of_a_page_too_large(self) -> None:
        drawn = [picture("layers/twice", "Forward", "<svg><title>One</title></svg>")]
        drawn[0].script = "large.js"
        scripts = {"large.js": "x" * 40_000, "other.js": "x" * 40_000}
        self.assertEqual(built(GOOD, drawn, scripts)[1], [])
        scripts["large.js"] *= 2
        faults = built(GOOD, drawn, scripts)[1]
        self.assertEqual(len(faults), 1)
        self.assertIn("layers/twice.html: style, scripts and font together", faults[0])

    def test_contrast(self) -> None:
        colours = "".join(f"--{name}: #777777; " for name in (*check.TEXT_COLOURS, *check.GROUNDS, *check.FILLS))
        faults = check.contrast_faults(f":root {{ {colours} }}")
        self.assertIn("--ink #777777 on --paper #777777 has a contrast of 1.00", "\n".join(faults))
        self.assertAlmostEqual(check.contrast("#000000", "#ffffff"), 21)


class Pages(unittest.TestCase):
    """Contents of a page."""

    files: dict[str, str]

    @classmethod
    def setUpClass(cls) -> None:
        cls.files = built(GOOD)[0]
        cls.twice = cls.files["layers/twice.html"]

    def test_same_bytes(self) -> None:
        self.assertEqual(built(GOOD)[0], self.files)

    def test_figure(self) -> None:
        self.assertIn('<figure id="twice.1" class="equation" data-t="1" aria-label="twice.1: out_d = 2 in_d">', self.twice)
        self.assertIn('<a class="tag" href="#twice.1">(twice.1)</a>', self.twice)
        for line in ("#p4", "#c4", "#g4"):
            self.assertIn(f'<a href="{line}"', self.twice)

    def test_excerpt_is_the_loop(self) -> None:
        begin = self.twice.index('<ol class="excerpt">')
        excerpt = self.twice[begin : self.twice.index("</ol>", begin)]
        self.assertIn("<li>for (Index d = 0; d &lt; D; ++d) {<li style=--i:2>  <mark>out_d[d] = 2 * in_d[d];</mark><li>}", excerpt)
        self.assertNotIn("void", excerpt)

    def test_excerpt_does_not_repeat_its_tag(self) -> None:
        excerpts = re.findall(r'<ol class="excerpt">.*?</ol>', self.twice, re.DOTALL)
        self.assertEqual(len(excerpts), 6)
        self.assertFalse([excerpt for excerpt in excerpts if "(twice." in excerpt])
        for comment, shown in (
            ("// (twice.1) (twice.2)", '<i>// <a href="#twice.2">(twice.2)</a></i>'),
            ("// (twice.1): both", "<i>// both</i>"),
            ("// as (twice.1) says", '<i>// as <a href="#twice.1">(twice.1)</a> says</i>'),
        ):
            files = GOOD | {"plain/twice.cpp": GOOD["plain/twice.cpp"].replace("// (twice.1)", comment)}
            self.assertIn(f"<mark>out_d[d] = 2 * in_d[d];  {shown}</mark>", built(files)[0]["layers/twice.html"])

    def test_a_comment_in_an_excerpt_is_indented_as_in_the_file(self) -> None:
        loops = "  for (Index d = 0; d < D; ++d) {\n    for (b) {\n      // Why.\n    "
        plain = GOOD["plain/twice.cpp"].replace("  for (Index d = 0; d < D; ++d) {\n", loops, 1).replace("\n  }\n", "\n    }\n  }\n", 1)
        page = built(GOOD | {"plain/twice.cpp": plain})[0]["layers/twice.html"]
        self.assertIn("<li style=--i:4>    <i>// Why.</i>", page)

    def test_excerpt_does_not_name_equations_of_other_layers(self) -> None:
        for comment, shown in (
            ("// (twice.1) (echo.1)", "<mark>out_d[d] = 2 * in_d[d];</mark>"),
            ("// (echo.1) (twice.1), (echo.1): both", "<mark>out_d[d] = 2 * in_d[d];  <i>// both</i></mark>"),
        ):
            files = GOOD | {"plain/twice.cpp": GOOD["plain/twice.cpp"].replace("// (twice.1)", comment)}
            page = built(files)[0]["layers/twice.html"]
            self.assertIn(shown, page[page.index('<ol class="excerpt">') :])
            self.assertIn('<a href="../blocks/echo.html#echo.1">(echo.1)</a>', page, "the listing must have the tag")

    def test_listing_is_complete_and_verbatim(self) -> None:
        begin = self.twice.index('aria-label="cuda/twice.cu">') + len('aria-label="cuda/twice.cu">')
        lines = self.twice[begin : self.twice.index("</ol>", begin)].split("<li\n")[1:]
        text = "\n".join(html.unescape(re.sub("<[^>]*>", "", line.split(">", 1)[1])) for line in lines) + "\n"
        self.assertEqual(text, GOOD["cuda/twice.cu"])

    def test_block_has_its_line_and_links_to_the_layer(self) -> None:
        echo = self.files["blocks/echo.html"]
        self.assertIn('calls <a href="../layers/twice.html">twice</a>', echo)
        self.assertIn('<a href="#b4"', echo)
        self.assertNotIn("<summary>CPU and GPU", echo)

    def test_a_fold_of_a_chapter_holds_markdown_and_is_closed(self) -> None:
        fold = "\n<details>\n<summary>Second reading</summary>\n\n*Why* $x_d$: [echo](../blocks/echo.md).\n\n</details>\n"
        written, faults = built(GOOD | {"docs/layers/twice.md": GOOD["docs/layers/twice.md"] + fold})
        self.assertEqual(faults, [])
        page = written["layers/twice.html"]
        begin = page.index('<details class="fold">\n<summary>Second reading</summary>')
        shown = page[begin : page.index("</details>", begin)]
        self.assertRegex(shown, r'<p><em>Why</em> <span class="m"><math>.*</math>:</span> <a href="../blocks/echo.html">echo</a>.</p>')

    def test_every_file_beside_a_chapter_is_a_fold(self) -> None:
        page = built(GOOD | {"cpu/twice_step.cpp": GOOD["plain/twice.cpp"]})[0]["layers/twice.html"]
        self.assertEqual(re.findall(r'<details><summary id="(\w+-?)"><h2>', page), ["p", "c", "c2-", "g"])
        listings = page[page.index('<div class="beside">') :]
        self.assertEqual(listings.count("</ol></details>"), 4)

    def test_no_other_origin_and_no_absolute_path(self) -> None:
        for path, text in self.files.items():
            if path.endswith(".html"):
                self.assertNotRegex(text, r'(?:src|href)="(?:https?:|/|file:)', path)

    def test_order(self) -> None:
        for path, before, after in (("conventions", "index", "layers/twice"), ("layers/twice", "../conventions", "../blocks/echo")):
            page = self.files[f"{path}.html"]
            self.assertEqual(page.count(f'rel="prev" href="{before}.html"'), 2, "navigation above and below")
            self.assertEqual(page.count(f'rel="next" href="{after}.html"'), 2)
        self.assertNotIn('rel="prev"', self.files["index.html"])
        self.assertNotIn('rel="next"', self.files["blocks/echo.html"])

    def test_documents_of_the_order_have_arrows(self) -> None:
        files = dict(GOOD, **{"docs/parts.md": "# In parts\n"})
        files["docs/index.md"] += "- [parts](parts.md): In parts.\n"
        written, faults = built(files)
        self.assertEqual(faults, [])
        self.assertIn('<a rel="prev" href="../blocks/echo.html">← echo</a>', written["docs/parts.html"])
        self.assertIn('<a rel="next" href="../docs/parts.html">parts →</a>', written["blocks/echo.html"])

    def test_index_has_sentences_of_its_own(self) -> None:
        self.assertIn('<a href="layers/twice.html">twice</a>: Everything is doubled, in\none line.</li>', self.files["index.html"])
        self.assertNotIn("Doubles every number", self.files["index.html"])

    def test_long_pages_have_a_list_of_their_headings(self) -> None:
        self.assertNotIn('class="contents"', self.twice)
        more = "".join(f"\n## Part {i} of `it`\n\nText.\n" for i in range(3))
        page = built(GOOD | {"docs/layers/twice.md": GOOD["docs/layers/twice.md"] + more})[0]["layers/twice.html"]
        contents = page[page.index('<nav class="contents"') :].split("</nav>")[0]
        self.assertEqual(re.findall(r'href="#(.*?)"', contents), ["forward", "part-0-of-it", "part-1-of-it", "part-2-of-it"])
        self.assertLess(page.index("</h1>"), page.index(contents))

    def test_a_part_is_listed_if_it_computes_an_equation(self) -> None:
        files = dict(GOOD)
        files["cpu/twice_tiles.hpp"] = "int mechanism;\n"
        files["cpu/twice_step.cpp"] = "void twice_step() {\n  out = 2 * in;  // (twice.1)\n}\n"
        page = built(files)[0]["layers/twice.html"]
        self.assertIn(', step <a href="#c2-2">2</a>', page)
        self.assertNotIn("twice_tiles.hpp", page)

    def test_a_page_that_is_too_large_lists_files_in_parts(self) -> None:
        files = dict(GOOD)
        lines = {"cpu/twice_step.cpp": 900, "cuda/twice_rows.cu": 900, "cuda/twice_step.cu": 1_000}
        for path, count in lines.items():
            files[path] = "int x;\nvoid twice() {\n  for (a) {\n    out = 2 * in;  // (twice.1)\n  }\n}\n" + LONG_LINE * count
        files["docs/blocks/echo.md"] += "\n[Steps](../../cuda/twice_step.cu).\n"
        written, faults = built(files)
        self.assertEqual(faults, [])
        page, whole = written["layers/twice.html"], written["files/cuda/twice_step.cu.html"]
        self.assertIn(', step <a href="#g3-4">4</a>', page)
        self.assertIn('<span>GPU</span> <a href="../files/cuda/twice_step.cu.html">cuda/twice_step.cu</a>, in parts</h2>', page)
        begin = page.index('aria-label="cuda/twice_step.cu, in parts">')
        part = page[begin : page.index("</ol>", begin)]
        self.assertIn('<li\nclass=gap><a href="../files/cuda/twice_step.cu.html#L1">⋯ 1 line</a><li\n value=2 style=--n:2>void twice() {', part)
        self.assertIn("<li\nid=g3-4 data-t=1>    out = 2 * in;", part)
        self.assertRegex(part, r'#L21">⋯ 986 lines</a>$')  # 16 context lines after it are shown, because they fit
        self.assertEqual(page.count("<p>cuda/twice"), 2, "near the size limit one place per device has an excerpt")
        self.assertIn('part of <a href="../../layers/twice.html">twice</a>', whole)
        self.assertIn('<a href="../../layers/twice.html#twice.1">(twice.1)</a>', whole)
        self.assertIn('href="../files/cuda/twice_step.cu.html">Steps</a>', written["blocks/echo.html"])
        self.assertNotIn("files/cpu/twice_step.cpp.html", sorted(written))  # without the largest file the page fits
        self.assertIn('aria-label="cpu/twice_step.cpp"', page)

    def test_less_is_shown_where_there_is_less_room(self) -> None:
        files = dict(GOOD)
        lines = "int a_line_of_which_there_are_so_many_that_not_all_have_room, nor a half of them or a third;\n" * 30
        files["cpu/twice_step.cpp"] = "".join(f"void f{i}() {{\n{lines}  out = 2 * in;  // (twice.1)\n{lines}}}\n" for i in range(160))
        written, faults = built(files)
        self.assertEqual([fault for fault in faults if "layers/twice.html" in fault], [])
        page = written["layers/twice.html"]
        self.assertEqual(len(re.findall(r"id=c2-\d+ data-t=1>", page)), 160, "every line with a tag must be listed")
        self.assertLess(page.count("int a_line"), 160 * 32)
        self.assertGreater(page.count("int a_line"), 160)

    def test_a_part_that_is_listed_in_parts_is_still_needed(self) -> None:
        files = dict(GOOD)
        rows = GOOD["plain/twice.cpp"] + LONG_LINE * 1_300
        for path in ("cpu/twice.cpp", "cuda/twice.cu"):
            files[path] = "int main;\n"
            files[path.replace(".", "_rows.")] = rows
        self.assertEqual(built(files)[1], [])
        files["cuda/twice_rows.cu"] = rows.replace("// (twice.2)", "")
        self.assertIn("(twice.2) has no line in cuda", built(files)[1][0])

    def test_linked_header_has_a_page(self) -> None:
        self.assertIn('<a href="../../../layers/twice.html#twice.1">(twice.1)</a>', self.files["files/src/layers/twice.hpp.html"])


def moved(*paths: tuple[str, str]) -> dict[str, str]:
    """GOOD with its files in other folders, where they are included and linked to."""
    files = dict(GOOD)
    for old, new in paths:
        files[new] = files.pop(old)
    for path in ("docs/index.md", "README.md"):
        for old, new in paths:
            link = posixpath.relpath(old, posixpath.dirname(path) or "."), posixpath.relpath(new, posixpath.dirname(path) or ".")
            files[path] = files[path].replace(f"({link[0]})", f"({link[1]})")
    return files


def of_feature(folder: str, name: str, chapter: str) -> list[tuple[str, str]]:
    """The files of a layer, as they are moved to a feature's folder."""
    devices = [(f"{device}/{name}.{end}", f"{folder}/{name}_{device}.{end}") for device, end in DEVICES]
    return devices + [
        (f"src/layers/{name}.hpp", f"{folder}/{name}.hpp"),
        (f"tests/layers/test_{name}.cpp", f"{folder}/test_{name}.cpp"),
        (f"docs/layers/{name}.md", f"{folder}/{chapter}.md"),
    ]


DEVICES = (("plain", "cpp"), ("cpu", "cpp"), ("cuda", "cu"))
THRICE = {path.replace("twice", "thrice"): text.replace("twice", "thrice") for path, text in GOOD.items() if "twice" in path}


class Features(unittest.TestCase):
    """Layers, blocks and documents in extras/: their addresses follow their names."""

    def assert_same_article(self, files: dict[str, str], *pages: str) -> None:
        written, faults = built(files)
        self.assertEqual(faults, [])
        before = built(GOOD)[0]
        for page in pages:
            articles = [re.search("<article>.*</article>", site[page], re.DOTALL).group() for site in (before, written)]
            for path in re.findall(r"files/([\w/.]+)\.html", articles[1]):
                self.assertIn(path, files)
            bare = [re.sub(r'href="[^"#]*files/[^"]*"|<p>[\w/.]+:(?=\d)', "", article) for article in articles]
            self.assertEqual(*bare)

    def test_a_layer_whose_chapter_has_its_name(self) -> None:
        self.assert_same_article(moved(*of_feature("extras/doubling", "twice", "twice")), "layers/twice.html", "blocks/echo.html")

    def test_a_layer_whose_chapter_is_that_of_a_feature_of_another_name(self) -> None:
        files = moved(*of_feature("extras/doubling", "twice", "README"))
        self.assert_same_article(files, "layers/twice.html", "blocks/echo.html")
        written = built(files)[0]
        self.assertIn('<a rel="next" href="layers/twice.html">twice →</a>', written["conventions.html"])
        self.assertIn('aria-label="extras/doubling/twice_cpu.cpp"', written["layers/twice.html"])
        self.assertIn('<a href="../files/extras/doubling/test_twice.cpp.html">test</a>', written["layers/twice.html"])
        self.assertFalse([page for page in written if page.startswith("extras/")])

    def test_a_block(self) -> None:
        files = moved(("src/blocks/echo.hpp", "extras/echo/echo.hpp"), ("docs/blocks/echo.md", "extras/echo/README.md"))
        self.assert_same_article(files, "layers/twice.html", "blocks/echo.html")
        self.assertIn('<a rel="next" href="../blocks/echo.html">echo →</a>', built(files)[0]["layers/twice.html"])

    def test_two_layers_and_a_block_in_one_folder(self) -> None:
        files = moved(
            *of_feature("extras/echo", "twice", "twice"),
            ("src/blocks/echo.hpp", "extras/echo/echo.hpp"),
            ("docs/blocks/echo.md", "extras/echo/README.md"),
        )
        for old, new in of_feature("extras/echo", "thrice", "thrice"):
            files[new] = THRICE[old]
        files["docs/index.md"] += "- [thrice](../extras/echo/thrice.md): Again.\n"
        written, faults = built(files)
        self.assertEqual(faults, [])
        for name, other in (("twice", "thrice"), ("thrice", "twice")):
            page = written[f"layers/{name}.html"]
            listings = re.findall(r'<summary id="\w"><h2><span>[\w ]*</span> (.*?)</h2>', page)
            self.assertEqual(listings, [f"extras/echo/{name}_{device}.{end}" for device, end in DEVICES])
            self.assertNotIn(other, page[page.index("<article>") : page.index("</article>")])

    def test_two_layers_of_one_name(self) -> None:
        files = GOOD | {new: GOOD[old] for old, new in of_feature("extras/doubling", "twice", "twice")}
        faults = built(files)[1]
        self.assertEqual(len(faults), 1)
        self.assertRegex(faults[0], "has the name of .*/twice.hpp, so their tags cannot be told apart")

    def test_a_layer_and_a_block_of_one_name(self) -> None:
        files = GOOD | {"extras/echo/twice.hpp": GOOD["src/blocks/echo.hpp"], "extras/echo/README.md": "# twice\n"}
        self.assertIn("extras/echo/twice.hpp: has the name of src/layers/twice.hpp", built(files)[1][0])

    def test_documents(self) -> None:
        files = GOOD | {"extras/steps/README.md": "# Steps\n", "extras/steps/more.md": "# More\n"}
        files |= {"extras/guess/README.md": "# Guess\n", "extras/guess/guess_programs.cpp": ""}
        documents = ("steps/README", "steps/more", "guess/README")
        files["docs/index.md"] += "".join(f"- [x](../extras/{path}.md): It is.\n" for path in documents)
        written, faults = built(files)
        self.assertEqual(faults, [])
        self.assertIn('<a rel="next" href="../docs/steps.html">steps →</a>', written["blocks/echo.html"])
        self.assertIn('<a rel="next" href="more.html">more →</a>', written["docs/steps.html"])
        self.assertIn("<h1", written["docs/tasks/guess.html"])

    def test_documents_of_one_address(self) -> None:
        files = GOOD | {"extras/steps/README.md": "# Steps\n", "docs/steps.md": "# Steps\n"}
        files["docs/index.md"] += "- [a](steps.md): It is.\n- [b](../extras/steps/README.md): It is.\n"
        self.assertEqual(built(files)[1], ["extras/steps/README.md: has the address of another page, docs/steps.html"])


class Excerpts(unittest.TestCase):
    """The lines under an equation."""

    def excerpt(self, text: str, number: int) -> list[str]:
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "a.cpp").write_text(text, encoding="utf-8")
            rows = sources.Source(Path(folder), "a.cpp").excerpt(number, "twice")
            return [row.line.text[row.margin :] + " ..." * row.cut for row in rows]

    def test_loops_are_nested_as_in_the_file_and_closed(self) -> None:
        text = "void f() {\n  for (a) {\n    for (b) {\n      x = 1;\n    }\n  }\n}\n"
        self.assertEqual(self.excerpt(text, 4), ["for (a) {", "  for (b) {", "    x = 1;", "  }", "}"])

    def test_lines_left_out_are_marked_before_and_behind_a_loop(self) -> None:
        text = "void f() {\n  for (a) {\n    y();\n    for (b) {\n      x = 1;\n    }\n    z();\n  }\n}\n"
        self.assertEqual(self.excerpt(text, 5), ["for (a) { ...", "  for (b) {", "    x = 1;", "  } ...", "}"])

    def test_braces_match_in_every_excerpt_of_the_repository(self) -> None:
        """Each begins at the margin, too."""
        root = Path(__file__).resolve().parents[2]
        for room in sources.rooms(root).values():
            for source in [source for files in room.devices.values() for source in files]:
                for line in source.lines:
                    if room.kind == "blocks" or room.name not in [tag.split(".")[0] for tag in line.tags]:
                        continue
                    rows = source.excerpt(line.number, room.name)
                    braces = re.findall(r"[{}]", re.sub(r"'[{}]'|\"[^\"]*\"", "", "".join(row.line.code for row in rows)))
                    place = f"{source.path}:{line.number}"
                    shown = {row.line.number for row in rows}
                    self.assertIn(line.number, shown, place)
                    self.assertEqual(min(row.line.indent - row.margin for row in rows if row.line.code), 0, place)
                    if shown >= set(source.statement(line.number)):  # otherwise only a part of the statement is shown
                        self.assertEqual(braces.count("{"), braces.count("}"), place)

    def test_lines_of_other_layers_are_left_out(self) -> None:
        text = "void f() {\n  for (a) {\n    y();  // (other.1)\n    z(1,  // (other.2)\n      2);\n    x = 1;  // (twice.1)\n  }\n}\n"
        self.assertEqual(self.excerpt(text, 6), ["for (a) { ...", "  x = 1;  // (twice.1)", "}"])
        kept = text.replace("(other.1)", "(other.1) (twice.2)").replace("z(1,  // (other.2)\n      2);", "z();")
        self.assertEqual(len(self.excerpt(kept, 5)), 5)

    def test_braces_in_strings_are_no_blocks(self) -> None:
        text = "void f() {\n  for (a) {\n    x = \"}\";\n    y = '}';\n  }\n}\n"
        self.assertEqual(self.excerpt(text, 4), ["for (a) {", "  x = \"}\";", "  y = '}';", "}"])

    def test_functions_that_are_handed_over_are_loops(self) -> None:
        text = (
            "void f() {\n  parallel_for(device, n,\n               [&](Index n) {\n    y();\n    for_lanes<T>(K, [&]<class L>(Index k) {\n"
            "      x = 1;\n    });\n  });\n}\n"
        )
        expected = ["parallel_for(device, n,", "             [&](Index n) { ..."]
        expected += ["  for_lanes<T>(K, [&]<class L>(Index k) {", "    x = 1;", "  });", "});"]
        self.assertEqual(self.excerpt(text, 6), expected)

    def test_a_function_with_a_name_is_where_loops_end(self) -> None:
        text = "void f() {\n  for (a) {\n    const auto g = [&](Index i) {\n      for (b) {\n        x = 1;\n      }\n    };\n  }\n}\n"
        self.assertEqual(self.excerpt(text, 5), ["for (b) {", "  x = 1;", "}"])
        method = "struct S {\n  void f() {\n    for (b) {\n      x = 1;\n    }\n  }\n};\n"
        self.assertEqual(self.excerpt(method, 4), ["for (b) {", "  x = 1;", "}"])

    def test_a_condition_is_no_loop(self) -> None:
        text = "void f() {\n  for (a) {\n    if (b) {\n      x = 1;\n    }\n  }\n}\n"
        self.assertEqual(self.excerpt(text, 4), ["for (a) {", "  if (b) {", "    x = 1;", "  }", "}"])

    def test_never_the_signature(self) -> None:
        self.assertEqual(self.excerpt("void f() {\n  y = 1;\n  x = 1;\n}\n", 3), ["y = 1;", "x = 1;"])
        cut_off = "T score(const A& a,\n        Index c,\n        Index s) {\n  x = 1;\n}\n"
        self.assertEqual(self.excerpt(cut_off, 4), ["x = 1;"])

    def test_a_loop_before_is_whole_or_absent(self) -> None:
        text = "void f() {\n  for (a) {\n    y();\n  }\n  x = 1;\n}\n"
        self.assertEqual(self.excerpt(text, 5), ["for (a) {", "  y();", "}", "x = 1;"])
        long = "void f() {\n  for (a) {\n" + "    y();\n" * 9 + "  }\n  x = 1;\n}\n"
        self.assertEqual(self.excerpt(long, 13), ["x = 1;"])

    def test_at_most_eight_lines_and_the_headers_of_outer_loops(self) -> None:
        text = "void f() {\n  for (a) {\n    for (b) {\n" + "      y();\n" * 20 + "      x = 1;\n      z();\n    }\n  }\n}\n"
        found = self.excerpt(text, 24)
        self.assertLessEqual(len([line for line in found if "}" not in line]), sources.LONGEST_EXCERPT + 1)
        self.assertEqual((found[:2], found[2]), (["for (a) {", "  for (b) { ..."], "    y();"))
        self.assertEqual(found[-3:], ["    x = 1; ...", "  }", "}"])

    def test_a_loop_that_computes_is_shown_from_its_head(self) -> None:
        text = "void f() {\n  for (a) {\n    for (b) {\n" + "      y();\n" * 20 + "    }\n  }\n}\n"
        self.assertEqual(self.excerpt(text, 3), ["for (a) {", "  for (b) {", *["    y();"] * 6, "    y(); ...", "  }", "}"])

    def test_whole_statement(self) -> None:
        text = "void f() {\n  for (a) {\n    x = g(1,\n          2);\n  }\n}\n"
        self.assertEqual(self.excerpt(text, 4), ["for (a) {", "  x = g(1,", "        2);", "}"])

    def test_what_hangs_far_to_the_right_is_brought_nearer(self) -> None:
        text = "void f() {\n  x = a_long_function(1,\n" + " " * 22 + "{.y = 2,\n" + " " * 23 + ".z = 3});\n}\n"
        self.assertEqual(self.excerpt(text, 2), ["x = a_long_function(1,", "    {.y = 2,", "     .z = 3});"])

    def test_a_statement_that_is_too_long_says_so(self) -> None:
        text = "void f() {\n  x = g(1,\n" + "        2,\n" * 9 + "        3);\n}\n"
        found = self.excerpt(text, 2)
        self.assertEqual((len(found), found[-1]), (sources.LONGEST_EXCERPT, "      2, ..."))

    def test_address_in_strings_is_escaped(self) -> None:
        self.assertEqual(listing._highlighted("a.cpp", 'f("<&>");')[0], 'f("&lt;&amp;>");')


if __name__ == "__main__":
    unittest.main()
