#!/usr/bin/env python3
"""tools/check_words.py: the rules of CONTRIBUTING.md for words that a script can check.

- a comment or a help text does not begin with Of, What, Who, Whoever or Whether ... or
- a help text has no placeholder in braces
- README.md has at most 160 lines; the pages of the first hour have at most 7,500 words before their folds
- a sentence of the documentation has at most 40 words, outside tables, code and equations
- the subject of a commit has at most 72 characters, from the commit after FIRST_COMMIT on

tools/words_exceptions.txt lists longer sentences that are allowed, by their first words. An entry without such a
sentence is a failure, so that the list only shrinks. Prints every failure; the last line counts the rules without
failures.
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
FIRST_COMMIT = "f19539a"
BAD_BEGIN = re.compile(r"(Of|What|Who|Whoever)\b|Whether\b[^.]*\bor\b")
SHELL_LIKE = {".sh", ".py", ".cmake", ".txt", ".yml"}
FOLD = re.compile(r"<details.*?</details>", re.S)


def tracked(*patterns):
    names = subprocess.run(["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / name for name in names.splitlines() if (ROOT / name).exists()]


def name_of(path):
    return str(path.relative_to(ROOT))


def comment_faults():
    marks = {suffix: "//" for suffix in (".cpp", ".hpp", ".cu", ".js", ".inc")} | {suffix: "#" for suffix in SHELL_LIKE}
    for path in tracked("*.cpp", "*.hpp", "*.cu", "*.js", "*.sh", "*.py", "CMakeLists.txt", "Makefile", ".ci/run"):
        mark = "#" if path.name in ("Makefile", "run") else marks.get(path.suffix)
        before = ""
        for number, line in enumerate(path.read_text().splitlines(), 1):
            comment = re.search(r"(?:^|\s)" + re.escape(mark) + r" (.*)", line)
            text = comment.group(1) if comment and '"' not in line[: comment.start()] else ""
            # A line that continues a sentence may begin with any word.
            begins = not before or before.rstrip()[-1:] in ".:;"
            if text and begins and BAD_BEGIN.match(text):
                yield f"{name_of(path)}:{number}: {text}"
            before = text


def help_faults():
    call = re.compile(r'Setting\{+\s*"[^"]*",\s*"[^"]*",\s*"[^"]*",\s*((?:"[^"]*"\s*)+)')
    flag = re.compile(r'flags\.\w+\(\s*"[^"]*",\s*(?:"[^"]*",\s*)?((?:"[^"]*"\s*)+)')
    for path in tracked("src/*.hpp", "src/*.cpp", "extras/*.hpp", "extras/*.cpp"):
        source = path.read_text()
        for match in [*call.finditer(source), *flag.finditer(source)]:
            text = "".join(re.findall(r'"([^"]*)"', match.group(1)))
            if "{" in text or BAD_BEGIN.match(text[:1].upper() + text[1:]):
                yield f"{name_of(path)}: help text: {text}"


def prose(markdown):
    """Paragraphs and list items of a page, without code, equations, tables and marks."""
    markdown = re.sub(r"^(```|~~~).*?^\1\s*$", "\n\n", markdown, flags=re.S | re.M)
    markdown = re.sub(r"\$\$.*?\$\$", " ", markdown, flags=re.S)
    markdown = re.sub(r"<(pre|table|svg|style|script)\b.*?</\1>", "\n\n", markdown, flags=re.S)
    markdown = re.sub(r"<!--.*?-->", " ", markdown, flags=re.S)
    markdown = re.sub(r"`[^`]*`|\$[^$\n]+\$", "CODE", markdown)
    markdown = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", markdown)
    markdown = re.sub(r"</?\w[^>]*>", " ", markdown)
    blocks, block = [], []
    for line in [*markdown.splitlines(), ""]:
        begins = re.match(r"\s*([-*+]|\d+\.) ", line)
        if not line.strip() or line.startswith(("#", "|", "    ")) or begins:
            blocks.append(" ".join(block))
            block = []
        if line.strip() and not line.startswith(("#", "|", "    ")):
            block.append(re.sub(r"^\s*([-*+]|\d+\.) ", "", line).strip("> "))
    return [block for block in blocks if block]


def sentences(markdown):
    for block in prose(markdown):
        yield from re.split(r"(?<=[.!?:;])[\"')*_]*\s+(?=[\"'(*_]*[A-Z0-9])", block)


def word_count(text):
    return len(re.findall(r"[A-Za-z0-9][\w'.,/+-]*", text))


def sentence_faults():
    exceptions = [line for line in (ROOT / "tools/words_exceptions.txt").read_text().splitlines()
                  if line and not line.startswith("#")]
    used = set()
    for path in tracked("*.md"):
        for sentence in sentences(path.read_text()):
            if word_count(sentence) <= 40:
                continue
            known = [entry for entry in exceptions if sentence.startswith(entry)]
            used.update(known)
            if not known:
                yield f"{name_of(path)}: {word_count(sentence)} words: {sentence}"
    for entry in exceptions:
        if entry not in used:
            yield f"tools/words_exceptions.txt: no longer needed: {entry}"
    if len(exceptions) > 40:
        yield f"tools/words_exceptions.txt: {len(exceptions)} entries, at most 40"


def readme_faults():
    lines = len((ROOT / "README.md").read_text().splitlines())
    if lines > 160:
        yield f"README.md: {lines} lines, at most 160"


def first_hour_pages():
    section = re.search(r"## The first hour\n(.*?)\n## ", (ROOT / "docs/index.md").read_text(), re.S).group(1)
    return [ROOT / "docs" / link for link in re.findall(r"^\d+\. \[[^\]]*\]\(([^)]*)\)", section, re.M)]


def first_hour_faults():
    counts = {name_of(page): sum(map(word_count, prose(FOLD.sub("", page.read_text())))) for page in first_hour_pages()}
    if sum(counts.values()) > 7500:
        yield f"docs/index.md: the first hour has {sum(counts.values())} words before its folds, at most 7,500: {counts}"


def commit_faults():
    log = subprocess.run(["git", "log", "--format=%h %s", f"{FIRST_COMMIT}..HEAD"], cwd=ROOT, capture_output=True, text=True)
    for line in log.stdout.splitlines():  # none in a clone without history
        commit, subject = line.split(" ", 1)
        if len(subject) > 72:
            yield f"commit {commit}: {len(subject)} characters: {subject}"


def main():
    passed = failed = 0
    for rule in (comment_faults, help_faults, readme_faults, first_hour_faults, sentence_faults, commit_faults):
        faults = list(rule())
        for fault in faults:
            print(fault)
        passed += not faults
        failed += bool(faults)
    print(f"{passed} passed, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
