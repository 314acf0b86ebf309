#!/usr/bin/env python3
"""tools/changes.py [--list] [--together] [--here BUILD] [--out FOLDER] [KIND[.NUMBER]...]: makes changes that a test
must notice.

tests/changes/KIND.txt lists errors, by kind, that no test noticed at one time. The form is that of the exercises
(tools/exercises.py): a number and a file, the old text after -, the new text after +, and the names of tests after
`fails`. At least one of these tests must fail with the change. A change without `fails` has a [TAG] after its file. It
is tried with all tests of this tag, which must pass without the change.

Each change is made in a copy of the repository in FOLDER (build/changes). The script builds the files of the named
tests there, and the programs that they run. --here makes the changes in this tree instead, builds in the folder BUILD,
where the tests are already built, and reverts the changes. --together makes several changes at a time if they name
different tests. This needs fewer builds, but a test may then fail because of another change.

First all named tests must pass without a change. Then the script prints, for each change, which of its tests fail.
--list only checks that each change can be made and that its tests exist. Status 1: a change is not noticed.
"""

import argparse
import subprocess
import sys
from pathlib import Path

import exercises

ROOT = exercises.ROOT
BENCH_ROWS = '#include "tests/harness/bench_rows.hpp"'  # features add the rows that bench must print for them


def spec_of(names):
    """Names in the syntax of Catch2: a comma would separate two names, a bracket would begin a tag."""
    return ",".join("".join("\\" + c if c in '\\,["*~' else c for c in name) for name in names)


def tests_of(change):
    """The tests that must notice a change, in the syntax of Catch2."""
    return spec_of(change.fails) if change.fails else change.tag


def files_of_tests():
    """The file of every test, by its name."""
    return {
        name: path
        for path in exercises.test_files()
        for name in exercises.names_in(path.read_text(encoding="utf-8"))
    }


def listed_faults(changes, files):
    faults = []
    for change in changes:
        what = exercises.changed(change, ROOT)
        if isinstance(what, str):
            faults.append(f"{change.name}: {what}")
        if not change.fails and change.tag == f"[{change.chapter}]":
            faults.append(f"{change.name}: no test is named, and no tag")
        faults += [f"{change.name}: there is no test '{name}'" for name in change.fails if name not in files]
    return faults


def stems_of(changes, files):
    """Names of the test files that the changes need; empty (all files) if a change names a tag."""
    if not all(change.fails for change in changes):
        return []
    paths = {files[name] for change in changes for name in change.fails}
    if any(BENCH_ROWS in path.read_text(encoding="utf-8") for path in paths):
        paths |= {path for path in exercises.test_files() if BENCH_ROWS in path.read_text(encoding="utf-8")}
    return sorted({path.stem for path in paths})


class Tree:
    """The tree in which changes are made, built and tested."""

    def __init__(self, options, stems):
        self.report = (options.here or options.out).resolve() / "changes.xml"
        if options.here:
            self.root, self.build_folder = ROOT, options.here
            return
        self.root, self.build_folder = exercises.Copy(options.out).tree, Path("build")
        self._run(
            ["cmake", "-G", "Ninja", "-S", ".", "-B", "build", "-DCMAKE_BUILD_TYPE=Release", "-DBUILD_TESTING=ON"]
            + ["-DBUILD_EMULATOR=ON", f"-DONLY_TESTS={';'.join(stems)}"]
        )

    def _run(self, command):
        done = subprocess.run(command, cwd=self.root, capture_output=True, text=True)
        return "" if done.returncode == 0 else done.stdout + done.stderr

    def build(self):
        """Returns the compiler's output if the build fails, else ""."""
        return self._run(["cmake", "--build", str(self.build_folder), "--target", "tests", "-j", "2"])

    def failing(self, tests):
        return exercises.failing(self.root, self.build_folder, tests, self.report)[0]

    def texts(self, changes):
        """The files of several changes before and after them; or the fault of a change, as text."""
        files = {file for change in changes for file, _, _ in change.changes}
        before = {file: (ROOT / file).read_text(encoding="utf-8") for file in files}
        after = dict(before)
        for change in changes:
            for file, old, new in change.changes:
                if after[file].count(old) != 1:
                    return f"{change.name}: {file} has {after[file].count(old)} times the text to change: {old}"
                after[file] = after[file].replace(old, new or "")
        return before, after

    def write(self, texts):
        for file, text in texts.items():
            (self.root / file).write_text(text, encoding="utf-8")


def groups_of(changes, together):
    """Groups of changes that are made together: no two changes of a group name the same test."""
    groups = []
    for change in changes:
        for group in groups if together else ():
            if not any(set(change.fails) & set(other.fails) or tests_of(change) == tests_of(other) for other in group):
                group.append(change)
                break
        else:
            groups.append([change])
    return groups


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--together", action="store_true")
    parser.add_argument("--here", type=Path, metavar="BUILD")
    parser.add_argument("--out", type=Path, default=ROOT / "build/changes", metavar="FOLDER")
    parser.add_argument("--from", dest="folder", type=Path, default=ROOT / "tests/changes", metavar="FOLDER")
    parser.add_argument("names", nargs="*", metavar="KIND[.NUMBER]")
    options = parser.parse_args()
    changes = [change for path in sorted(options.folder.glob("*.txt")) for change in exercises.read(path)]
    files = files_of_tests()
    faults = listed_faults(changes, files)
    chosen = [c for c in changes if not options.names or c.chapter in options.names or c.name in options.names]
    if not options.list and not faults:
        tree = Tree(options, stems_of(chosen, files))
        if error := tree.build():
            sys.exit(f"tools/changes.py: the tests do not build without a change:\n{error}")
        for tests in dict.fromkeys(tests_of(change) for change in chosen):
            if failed := tree.failing(tests):
                sys.exit(f"tools/changes.py: tests fail without a change: {'; '.join(failed)}")
        for group in groups_of(chosen, options.together):
            what = tree.texts(group)
            if isinstance(what, str):
                sys.exit(f"tools/changes.py: {what}")
            before, after = what
            try:
                tree.write(after)
                error = tree.build()
                for change in group:
                    failed = [] if error else tree.failing(tests_of(change))
                    print(f"{change.name} {change.changes[0][0]}: {'; '.join(failed) or 'not noticed'}", flush=True)
                    if not failed:
                        faults.append(f"{change.name}: " + (f"does not build: {error}" if error else "not noticed"))
            finally:
                tree.write(before)
    for fault in faults:
        print(f"tools/changes.py: {fault}", file=sys.stderr)
    print(f"{len(chosen)} changes {'can be made' if options.list else 'made'}, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
