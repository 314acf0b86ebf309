#!/usr/bin/env python3
"""tools/exercises.py [--list] [--print] [--out FOLDER] [CHAPTER[.NUMBER]...]: carries out the exercises of the
chapters.

tests/exercises/CHAPTER.txt (for a feature extras/FEATURE/exercises/CHAPTER.txt) describes the change of each exercise
and the tests that fail with it, so that its answer can be checked:

    1 plain/gelu.cpp [gelu]
    - old text, which must occur once in the file
    + new text
    fails gelu: a test that fails with the change, besides all others that fail
    says a text in the output of the tests

Several pairs of - and + are several changes, of one line or more; a line `in FILE` names another file. Without `fails`
all tests pass. A line `open` means that the failing tests are not known yet: the change is made, and nothing is
compared. `1 thought` instead of a change is a question without a change, and `1 by hand` is a change that this script
does not make. Without [TAG] the tests are those of the chapter's name; [TAG]~[OTHER] excludes some of them.

Every change is made in a copy of the repository's files in FOLDER (build/exercises). The script builds and runs the
tests of the tag there, except tests that run programs. --list makes no change: it checks that each exercise of a
chapter is in its file, that each change can be made, and that each test quoted in an answer exists. --print prints the
tests that fail, in the form of these files. Status 1 and a line for each exercise with a stale answer.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree
from dataclasses import dataclass, field
from pathlib import Path

import layout

ROOT = Path(__file__).resolve().parent.parent
SECONDS = 3600  # time limit of the tests


@dataclass
class Exercise:
    path: str  # path of the chapter's exercise file
    number: int
    file: str = ""
    tag: str = ""
    thought: bool = False
    by_hand: bool = False
    open: bool = False
    changes: list[tuple[str, str, str]] = field(default_factory=list)  # file, old, new
    fails: list[str] = field(default_factory=list)
    says: list[str] = field(default_factory=list)

    @property
    def chapter(self):
        return Path(self.path).stem

    @property
    def name(self):
        return f"{self.chapter}.{self.number}"


def read(path):
    """The exercises in a file."""
    found, last = [], ""
    for line in path.read_text(encoding="utf-8").splitlines():
        begins = re.fullmatch(r"(\d+) (thought|by hand|(\S+)(?: (\[.*\]))?)", line)
        if begins:
            number, what, file, tag = begins.groups()
            exercise = Exercise(os.path.relpath(path, ROOT), int(number), file or "", tag or f"[{path.stem}]")
            exercise.thought, exercise.by_hand = what == "thought", what == "by hand"
            if exercise.thought or exercise.by_hand:
                exercise.file = ""
            found.append(exercise)
        elif line.startswith("in "):
            exercise.file = line[3:]
        elif line[:2] == "- " or line == "-":
            if last == "-":
                file, old, new = exercise.changes.pop()
                exercise.changes.append((file, old + "\n" + line[2:], new))
            else:
                exercise.changes.append((exercise.file, line[2:], None))
        elif line[:2] == "+ " or line == "+":
            file, old, new = exercise.changes.pop()
            exercise.changes.append((file, old, line[2:] if new is None else new + "\n" + line[2:]))
        elif line == "open":
            exercise.open = True
        elif line.startswith("fails "):
            exercise.fails.append(line[6:])
        elif line.startswith("says "):
            exercise.says.append(line[5:])
        elif line.strip():
            sys.exit(f"tools/exercises.py: {path}: '{line}' is no line of an exercise")
        last = line[:1]
    return found


def chapters():
    """Chapters with exercises: path, exercise file, number of exercises, and text of the answers."""
    for path, name in layout.documents(ROOT).items():
        _, heading, rest = (ROOT / path).read_text(encoding="utf-8").partition("\n## Exercises\n")
        if heading:
            questions, _, rest = rest.partition("<details>")
            answers = rest.partition("</details>")[0]
            folder = f"{Path(path).parent}/exercises" if path.startswith("extras/") else "tests/exercises"
            yield path, f"{folder}/{name}.txt", len(re.findall(r"^\d+\. ", questions, re.MULTILINE)), answers


def test_files():
    return sorted([*ROOT.glob("tests/*/*.cpp"), *ROOT.glob("extras/*/test_*.cpp")])


def names_in(source):
    """Names of the tests in a file."""
    return re.findall(r'TEST_CASE\(\s*"((?:[^"\\]|\\.)*)"', source)


def changed(exercise, root):
    """The files of an exercise after its change; or the fault, as text."""
    texts = {}
    for file, old, new in exercise.changes:
        if not (root / file).is_file():
            return f"there is no {file}"
        text = texts.get(file) or (root / file).read_text(encoding="utf-8")
        if text.count(old) != 1:
            return f"{file} has {text.count(old)} times the text to change: {old}"
        texts[file] = text.replace(old, new or "")
    return texts


def listed_faults(all_exercises):
    """Stale exercises that can be found without running a test."""
    names = names_in("".join(path.read_text(encoding="utf-8") for path in test_files()))
    faults = []
    for path, file, count, answers in chapters():
        numbers = [exercise.number for exercise in all_exercises if exercise.path == file]
        if numbers != list(range(1, count + 1)):
            faults.append(f"{path}: {count} exercises, {file} has {numbers}")
        for quoted in re.findall(r'"([^"]+)"', " ".join(answers.split())):
            if not any(quoted.lower().removesuffix("...") in name.lower() for name in names):
                faults.append(f"{path}: an answer quotes a test that is not there: {quoted}")
    known = {file for _, file, _, _ in chapters()}
    for exercise in all_exercises:
        if exercise.path not in known:
            faults.append(f"{exercise.path}: there is no such chapter with exercises")
        what = changed(exercise, ROOT)
        if isinstance(what, str):
            faults.append(f"{exercise.name}: {what}")
        for name in exercise.fails:
            if name.partition(" - ")[0] not in names:  # a type may follow the name of a test
                faults.append(f"{exercise.name}: there is no test '{name}'")
    return list(dict.fromkeys(faults))


class Copy:
    """A copy of the repository's files in a folder, and a build of its tests there."""

    def __init__(self, folder):
        self.tree, self.tag = folder / "tree", None
        names = subprocess.run(
            ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, check=True, capture_output=True, text=True
        )
        files = [name for name in names.stdout.splitlines() if (ROOT / name).is_file()]
        for name in files:  # only changed files, so that only these are compiled again
            copy = self.tree / name
            if not copy.is_file() or copy.read_bytes() != (ROOT / name).read_bytes():
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / name, copy)

    def write(self, texts):
        for file, text in texts.items():
            (self.tree / file).write_text(text, encoding="utf-8")

    def build(self, tag):
        """Builds the tests with a tag. Returns the compiler's output if the build fails, else ""."""
        if tag != self.tag:
            name = tag.partition("~")[0]
            has_tag = [path.stem for path in test_files() if name in path.read_text(encoding="utf-8")]
            options = ["-DCMAKE_BUILD_TYPE=Release", "-DBUILD_TESTING=ON", "-DBUILD_EMULATOR=ON", "-DOMIT_PROGRAM_TESTS=ON"]
            options += [f"-DONLY_TESTS={';'.join(has_tag)}", *os.environ.get("OPTIONS", "").split()]
            self._run(["cmake", "-G", "Ninja", "-S", ".", "-B", "build", *options])
            self.tag = tag
        return self._run(["cmake", "--build", "build", "--target", "tests", *os.environ.get("JOBS", "").split()])

    def _run(self, command):
        done = subprocess.run(command, cwd=self.tree, capture_output=True, text=True)
        return "" if done.returncode == 0 else done.stdout + done.stderr

    def failing(self, tag, report):
        """The failing tests of a tag, and the whole output."""
        return failing(self.tree, "build", f"{tag}~[programs]", report)


def failing(tree, build, tests, report):
    """The failing tests, with the test that was running if the program crashed, and the whole output, which is kept in
    a file."""
    command = [f"{build}/tests", tests, "-r", "xml", "-o", str(report)]
    report.unlink(missing_ok=True)
    try:
        subprocess.run(command, cwd=tree, capture_output=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        pass
    text = report.read_text(encoding="utf-8", errors="replace") if report.is_file() else ""
    failed = []
    for case in re.split(r"(?=<TestCase )", text)[1:]:
        name = xml.etree.ElementTree.fromstring(re.match(r"<TestCase [^>]*?/?>", case)[0].rstrip("/>") + "/>").get("name")
        if '<OverallResult success="true"' not in case and 'skips="1"' not in case:
            failed.append(name)
    return failed, text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--print", action="store_true")
    parser.add_argument("--out", type=Path, default=ROOT / "build/exercises", metavar="FOLDER")
    parser.add_argument("names", nargs="*", metavar="CHAPTER[.NUMBER]")
    options = parser.parse_args()
    files = sorted([*ROOT.glob("tests/exercises/*.txt"), *ROOT.glob("extras/*/exercises/*.txt")], key=lambda path: path.stem)
    exercises = [exercise for path in files for exercise in read(path)]
    faults = listed_faults(exercises)
    chosen = [e for e in exercises if not options.names or e.chapter in options.names or e.name in options.names]
    thought = sum(e.thought for e in chosen)
    by_hand = sum(e.by_hand for e in chosen)
    opened = sum(e.open for e in chosen)
    to_do = [e for e in chosen if not e.thought and not e.by_hand]
    if not options.list and not faults:
        copy = Copy(options.out)
        for exercise in sorted(to_do, key=lambda e: e.tag):
            if error := copy.build(exercise.tag):
                sys.exit(f"tools/exercises.py: the tests {exercise.tag} do not build without a change:\n{error}")
            before = {file: (ROOT / file).read_text(encoding="utf-8") for file, _, _ in exercise.changes}
            copy.write(changed(exercise, ROOT))
            error = copy.build(exercise.tag)
            failed, text = ([], error) if error else copy.failing(exercise.tag, options.out.resolve() / f"{exercise.name}.xml")
            copy.write(before)
            if options.print:
                print(f"{exercise.name} {exercise.file}", *(f"fails {name}" for name in failed), sep="\n", flush=True)
            if error:
                faults.append(f"{exercise.name}: does not build: {error}")
            for name in sorted(set(failed) ^ set(exercise.fails)) if not exercise.open else ():
                faults.append(f"{exercise.name}: '{name}' {'fails' if name in failed else 'passes'}")
            for said in exercise.says:
                if said not in text:
                    faults.append(f"{exercise.name}: no test says '{said}'")
    for fault in faults:
        print(f"tools/exercises.py: {fault}", file=sys.stderr)
    done = "can be carried out" if options.list else "carried out"
    print(
        f"{len(to_do)} exercises {done}, {opened} of them not compared yet, {thought} are questions of thought, "
        f"{by_hand} are left to readers"
    )
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
