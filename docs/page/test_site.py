"""tools/site.sh without tools for WebAssembly: it writes the site without the parts that need them."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SAID = "the site is written without the lab and without interactive pictures"


class WithoutTools(unittest.TestCase):
    """A PATH with only Python: nothing can be compiled or installed."""

    @classmethod
    def setUpClass(cls) -> None:
        cls.folder = tempfile.TemporaryDirectory()
        python = Path(cls.folder.name, "python3")
        python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        python.chmod(0o755)
        cls.site = Path(cls.folder.name, "site")
        cls.done = subprocess.run(
            ["tools/site.sh", "--out", str(cls.site)],
            cwd=ROOT,
            env={"PATH": cls.folder.name},
            capture_output=True,
            text=True,
        )

    @classmethod
    def tearDownClass(cls) -> None:
        cls.folder.cleanup()

    def test_is_written_and_says_in_a_line_what_it_lacks(self) -> None:
        self.assertEqual((self.done.returncode, self.done.stdout), (0, f"{self.site}/index.html\n"), self.done.stderr)
        missing, said = self.done.stderr.splitlines()
        self.assertRegex(missing, r"^tools/need\.sh: clang lld .* is missing; install it")
        self.assertEqual(said, SAID)

    def test_no_script_carries_a_module(self) -> None:
        scripts = {str(path.relative_to(self.site)) for path in self.site.rglob("*.js")}
        others = {name for name in scripts if not name.startswith("kernels/")}
        self.assertEqual(others, {"page.js"})

    def test_links_and_scripts_lead_to_files(self) -> None:
        pages = sorted(self.site.rglob("*.html"))
        self.assertIn(self.site / "lab.html", pages)
        for page in pages:
            for target in re.findall(r'(?:href|src)="([^"#]+)[^"]*"', page.read_text(encoding="utf-8")):
                if not re.match(r"\w+:", target):
                    self.assertTrue((page.parent / target).is_file(), f"{page.name}: {target}")

    def test_the_index_and_every_layer_and_block_link_to_the_lab_at_their_top(self) -> None:
        pages = [self.site / "index.html", *self.site.glob("layers/*.html"), *self.site.glob("blocks/*.html")]
        self.assertGreater(len(pages), 40)
        for page in pages:
            text = page.read_text(encoding="utf-8")
            if "<title>Moved</title>" in text:
                continue
            main = text.split("<main", 1)[1]
            self.assertRegex(main.split("<h2")[0].split("<figure")[0], r'<a href="(\.\./)?lab\.html[#"]', page.name)

    def test_old_addresses_of_layers_lead_to_new_ones(self) -> None:
        text = (self.site / "layers/pooling_windowed.html").read_text()
        new = re.search(r'<a href="([^"]+)">', text)
        assert new is not None
        self.assertTrue((self.site / "layers" / new[1]).exists())
        self.assertIn(f"location.replace('{new[1]}' + location.hash)", text)

    def test_the_lab_shows_pictures(self) -> None:
        lab = (self.site / "lab.html").read_text(encoding="utf-8")
        self.assertEqual(re.findall(r'<script src="([^"]+)"', lab), ["page.js"])
        self.assertIn("These are pictures of a trained network.", lab)


if __name__ == "__main__":
    unittest.main()
