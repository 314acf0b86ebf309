"""Layers and blocks, their files, and the lines that compute their equations.

A tag such as (layernorm.4) is at the end of a line of code. An excerpt for a reader needs more than the line: the loops
around it, but not the whole function.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from fault import Fault

sys.path.append(str(Path(__file__).resolve().parents[2] / "tools"))
import layout  # noqa: E402
from layout import TAG  # noqa: E402

DEVICES = {"plain": "plain loops", "cpu": "CPU", "cuda": "GPU"}  # folder: name on the page
# Functions of a layer that do not count as a use of the layer if a part of a block calls them: they move data at chunk
# borders, only add, or belong to attention spans, which are optional in AttentionCore.
COPIES = {"copy_rows", "pooling_put_low_part", "pooling_zeta", "adaptive_span_forward", "adaptive_span_backward",
          "adaptive_span_clamp", "attention_bias_backward"}
SUMS = {"add": "dropout"}
MEMBER = re.compile(r"\b(\w+_)\b(?:\.(\w+))?")  # norm_.forward: a member, and the method called
# AttentionCore<..., ScoreKernel>: the part ScoreKernel is DotProductScores by default.
CHOICE = re.compile(r"template <class Device, class T, template <class, class> class (\w+) = (\w+)>\nclass (\w+)")
MIXERS = "src/network/mixers.hpp"  # the registry
MIXER = re.compile(r'^struct (\w+) \{\n  static constexpr MixerProperties properties = \{\s*\.name = "(\w+)"', re.MULTILINE)
LONGEST_EXCERPT = 8
FAR_IN = 16  # columns: continuation lines with a larger indentation are aligned to a bracket
LOOP = re.compile(r"(?:for|while|for_\w+) ?[(<]|do \{")
HANDED_OVER = re.compile(r"\[[^\]]*\](?:<[^>]*>)?\([^()]*\)(?: mutable)? \{$")  # parallel_for(device, n, [&](Index i) {
NAMED = re.compile(r"(?:const )?auto&? \w+ = \[|struct |class |\w[\w:<>*& ]* \w+\([^\[]*\) (?:const )?\{$")


@dataclass
class Line:
    """One line of a source file."""

    number: int
    text: str
    tags: list[str] = field(default_factory=list)  # "layernorm.4"

    @property
    def code(self) -> str:
        """The line without its comment."""
        return self.text.split("//", 1)[0].rstrip()

    @property
    def indent(self) -> int:
        return len(self.text) - len(self.text.lstrip())


class Row(NamedTuple):
    """A line of an excerpt."""

    line: Line
    margin: int  # number of leading columns left out
    cut: bool  # true: lines after this one are left out


class Source:
    """A C++ file as a list of lines. Only tags on lines of code count: tags in a separate comment refer to
    equations."""

    def __init__(self, root: Path, path: str) -> None:
        self.path = path
        self.name = Path(path).name
        text = (root / path).read_text(encoding="utf-8")
        self.size = len(text)
        self.lines = [Line(number, line) for number, line in enumerate(text.splitlines(), 1)]
        for line in self.lines:
            if line.code.strip():
                line.tags = ["%s.%s" % tag for tag in TAG.findall(line.text[len(line.code) :])]

    def lines_of(self, tag: str) -> list[Line]:
        return [line for line in self.lines if tag in line.tags]

    def has_tags_of(self, name: str) -> bool:
        return any(tag.startswith(f"{name}.") for line in self.lines for tag in line.tags)

    def statement(self, number: int) -> range:
        """The lines of the statement that contains a line: continuation lines are indented deeper than the first
        line."""
        first = last = number
        while first > 1 and self._goes_on(self.lines[first - 2]):
            first -= 1
        depth = self.lines[first - 1].indent
        while last < len(self.lines) and self._goes_on(self.lines[last - 1]) and self.lines[last].indent > depth:
            last += 1
        return range(first, last + 1)

    def hanging(self, number: int) -> int:
        """Columns of a continuation line's indentation that an excerpt leaves out, if the line is indented very far."""
        first, *rest = (self.lines[one - 1] for one in self.statement(number))
        further = min((line.indent for line in rest), default=0) - first.indent
        return further - 4 if number > first.number and further > FAR_IN else 0

    @staticmethod
    def _goes_on(line: Line) -> bool:
        """True: the statement of this line continues in the next line."""
        code = line.code.strip()
        return bool(code) and not code.endswith((";", "{", "}", ":")) and not code.startswith("#")

    def loops_around(self, number: int) -> list[range]:
        """The headers of all loops around the statement at a line, outermost first, each with all of its lines. A loop
        is a block that runs repeatedly, or a lambda passed to a function. The search ends at a named function: the
        calls of the function are elsewhere."""
        depth = self.lines[self.statement(number).start - 1].indent
        found = []
        for line in reversed(self.lines[: self.statement(number).start - 1]):
            header = self.statement(line.number) if line.code.endswith("{") else range(0)
            first = self.lines[header.start - 1]
            if not header or first.indent >= depth or self._end_of_block(line.number) <= number:
                continue
            depth = first.indent
            text = " ".join(self.lines[one - 1].code.strip() for one in header)
            if depth == 0 or NAMED.match(text):
                break
            if LOOP.match(text) or HANDED_OVER.search(text):
                found.append(header)
        return found[::-1]

    def function_of(self, number: int) -> range:
        """The signature of the function that contains a line; empty if no function contains it."""
        for line in reversed(self.lines[: number - 1]):
            if line.code.endswith("{") and self.lines[self.statement(line.number).start - 1].indent == 0:
                return self.statement(line.number)
        return range(0)

    def excerpt(self, number: int, name: str) -> list["Row"]:
        """The statement at a line with the headers of all loops around it and their closing braces, with their
        indentation, without the function's signature. Of the innermost loop's body at most LONGEST_EXCERPT lines are
        shown, without lines that compute only equations of layers other than `name`."""
        statement = self.statement(number)
        headers = self.loops_around(number)
        if LOOP.match(self.lines[statement.start - 1].code.strip()) and self.lines[statement[-1] - 1].code.endswith("{"):
            body = range(statement.start, self._end_of_block(statement[-1]) + 1)[:LONGEST_EXCERPT]  # the loop itself has the tag
        else:
            body = self._around(statement, LONGEST_EXCERPT - (len(headers[-1]) if headers else 0))
            if headers and self._end_of_block(headers[-1][-1]) - headers[-1].start < LONGEST_EXCERPT:
                body = range(headers[-1].start, self._end_of_block(headers[-1][-1]) + 1)
        shown = {one for piece in (*headers, body) for one in piece}
        shown -= {one for one in body if self._is_of_others(one, name)}
        shown = self._closed(shown)
        margin = min(self.lines[one - 1].indent for one in shown if self.lines[one - 1].code.strip())
        end = max(statement[-1], *shown)
        rows = []
        for one, following in zip_longest(sorted(shown), sorted(shown)[1:], fillvalue=end + 1):
            cut = any(self.lines[between - 1].code.strip() for between in range(one + 1, following))
            line = self.lines[one - 1]
            rows.append(Row(line, min(margin + self.hanging(one), line.indent), cut))
        return rows

    def _is_of_others(self, number: int, name: str) -> bool:
        """True: the statement of a line computes equations, but none of the layer `name`."""
        lines = [self.lines[one - 1] for one in self.statement(number)]
        tags = [tag.split(".")[0] for line in lines for tag in line.tags]
        return bool(tags) and name not in tags and not lines[-1].code.endswith("{")

    def surroundings(self, number: int, context: int) -> set[int]:
        """The lines around the statement at a line in a listing in parts: the signature of its function, the headers of
        its loops, and `context` lines before and after it."""
        statement, signature = self.statement(number), self.function_of(number)
        shown = {one for header in self.loops_around(number) for one in header} | set(signature)
        first = max(statement.start - context, signature.stop if signature else 1)
        return shown | set(range(first, min(statement[-1] + context, len(self.lines)) + 1))

    def _end_of_block(self, number: int) -> int:
        """Line of the brace that closes the block opened at the end of a line."""
        return self._blocks.get(number, len(self.lines))

    def _closed(self, shown: set[int]) -> set[int]:
        """`shown` with the first and last lines of all its blocks. The last line of a block may open another block."""
        more = {one for first, last in self._blocks.items() if last in shown for one in self.statement(first)}
        more |= {last for first, last in self._blocks.items() if first in shown}
        return shown if more <= shown else self._closed(shown | more)

    @cached_property
    def _blocks(self) -> dict[int, int]:
        """Maps each line that ends in an open brace to the line with the closing brace."""
        blocks: dict[int, int] = {}
        opened: list[int] = []
        for line in self.lines:
            for brace in re.findall(r"[{}]", re.sub(r"'[{}]'|\"[^\"]*\"", "", line.code)):
                if brace == "{":
                    opened.append(line.number)
                elif opened:
                    first = opened.pop()
                    if first != line.number and self.lines[first - 1].code.endswith("{"):
                        blocks[first] = line.number
        return blocks

    def _around(self, statement: range, most: int) -> range:
        """The complete statement and related statements before it: statements at the same depth without a blank line
        between them, at most four lines in total, or `most` lines if one of them is a loop."""
        first, last = statement.start, min(statement[-1], statement.start + most - 1)
        depth = self.lines[first - 1].indent
        while first > 1 and last - first + 1 < min(most, 4):
            before = self.lines[first - 2]
            start = self.statement(before.number).start
            if before.code.strip().startswith("}"):
                above = (line for line in self.lines[before.number - 2 :: -1] if line.text.strip() and line.indent <= depth)
                start = next((line.number for line in above if not line.code.strip().startswith("}")), 1)
            opens = before.code.endswith("{")
            if not before.text.strip() or opens or self.lines[start - 1].indent != depth or last - start + 1 > most:
                break
            first = start
        return range(first, last + 1)


@dataclass
class Room:
    """A layer or block: chapter, header, and the files of each device. A block has only its header."""

    kind: str  # "layers" or "blocks"
    name: str
    chapter: str
    test: str
    header: Source
    devices: dict[str, list[Source]]
    lent: frozenset[str] = frozenset()  # files of other layers of the family that also compute this layer

    @property
    def page(self) -> str:
        return f"{self.kind}/{self.name}"

    @cached_property
    def definitions(self) -> set[str]:
        """Tags that the header marks as definitions: only plain loops compute these equations."""
        return {
            "%s.%s" % tag
            for line in self.header.lines
            if "definition" in line.text and line.text.lstrip().startswith("//")
            for tag in TAG.findall(line.text)
            if tag[0] == self.name
        }

    def places(self, device: str, tag: str) -> list[tuple[Source, Line]]:
        """Places where a device computes an equation."""
        return [(source, line) for source in self.devices[device] for line in source.lines_of(tag)]


def _parts(files: list[str], name: str, names: list[str]) -> list[str]:
    """Files of a layer among a device's files: NAME first, then NAME_*, unless a longer layer name matches."""

    def owner(stem: str) -> str | None:
        fitting = [other for other in names if stem == other or stem.startswith(other + "_")]
        return max(fitting, key=len, default=None)

    mine = [file for file in files if owner(layout.stem(file)) == name]
    return sorted(mine, key=lambda file: (layout.stem(file) != name, file))


def _family(name: str, layers: list[str]) -> list[str]:
    """Layers with a common first word, as pooling, pooling_decay and pooling_sliding_window. A file of one layer may
    compute equations of another layer of the family."""
    first = min((other for other in layers if f"{name}_".startswith(f"{other}_")), key=len)
    return [other for other in layers if f"{other}_".startswith(f"{first}_")]


def rooms(root: Path) -> dict[str, Room]:
    """All layers and blocks with equations, by name."""
    all_files = layout.layers_and_blocks(root)
    layers = [files.name for files in all_files if files.kind == "layers"]
    of_device = {device: layout.device_files(root, device) for device in DEVICES}
    found: dict[str, Room] = {}
    for files in all_files:
        name, header = files.name, Source(root, files.header)
        if name in found:
            other = found[name]
            raise Fault(header.path, f"has the name of {other.header.path}, so their tags cannot be told apart")
        if files.kind == "blocks":
            found[name] = Room("blocks", name, files.chapter, files.test, header, {"block": [header]})
            continue
        devices, lent = {}, set()
        for device in DEVICES:
            parts = [Source(root, path) for path in _parts(of_device[device], name, layers)]
            # A file without equations is a mechanism. It has a page of its own if a chapter links to it.
            devices[device] = parts[:1] + [part for part in parts[1:] if part.has_tags_of(name)]
            others = [other for other in _family(name, layers) if other != name]
            borrowed = [Source(root, path) for other in others for path in _parts(of_device[device], other, layers)]
            borrowed = [part for part in borrowed if part.has_tags_of(name)]
            devices[device] += borrowed
            lent |= {part.path for part in borrowed}
        found[name] = Room("layers", name, files.chapter, files.test, header, devices, frozenset(lent))
    return found


def mixers(root: Path) -> dict[str, str]:
    """Maps each mixer name to its block, in the order of the registry. Quadratic attention belongs to the block
    metric."""
    names = {}
    for files in layout.layers_and_blocks(root):
        for type_, name in MIXER.findall((root / files.header).read_text(encoding="utf-8")):
            names[type_] = name, files.name
    registry = re.search(r"using Mixers = MixerList<([^>]*)>;", (root / MIXERS).read_text(encoding="utf-8"))
    if not registry:
        raise Fault(MIXERS, "has no list of mixers")
    types = re.findall(r"\w+Mixer\b", registry.group(1))
    for type_ in types:
        if type_ not in names:
            raise Fault(MIXERS, f"lists {type_}, which no header of a block declares")
    return dict(names[type_] for type_ in types)


class Calls:
    """Layers that each line of a block calls, directly or through the block's parts."""

    def __init__(self, root: Path, found: dict[str, Room]) -> None:
        self._functions = {}  # layernorm_forward: layernorm
        for room in found.values():
            if room.kind == "layers":
                for line in room.header.lines:
                    declared = re.match(r"(?:inline |constexpr )*(?:void|\w[\w<>]*) (\w+)\(", line.text)
                    if declared and declared.group(1) not in COPIES | SUMS.keys():
                        self._functions[declared.group(1)] = room.name
        self._parts = {}  # PoolingCore: {"forward": {"pooling"}, ...}
        members: dict[str, dict[str, str]] = {}
        inner: dict[str, list[tuple[str, str, str]]] = {}
        choices: dict[str, tuple[str, str]] = {}  # AttentionCore: (ScoreKernel, DotProductScores)
        headers = [*sorted((root / "src/blocks").rglob("*.hpp")), *sorted(root.glob("extras/*/*.hpp"))]
        sources = [Source(root, path.relative_to(root).as_posix()) for path in headers]
        for source in sources:
            for name, default, part in CHOICE.findall("\n".join(line.text for line in source.lines)):
                choices[part] = (name, default)
        self._open = {name for name, _ in choices.values()}
        for source in sources:
            for name, lines in self._classes(source):
                self._parts.setdefault(name, {}).update(self._methods(lines))
                members.setdefault(name, {}).update(self._members(lines))
                for function, code in self._by_function(lines):
                    inner.setdefault(name, []).extend((function, *call) for call in MEMBER.findall(code))
        # A part with a choice of an inner part counts as a separate part for each choice.
        with_choice: dict[str, dict[str, str]] = {}
        for part, (name, default) in choices.items():
            for chosen in {part, *(type_ for held in members.values() for type_ in held.values())}:
                if chosen.split(" of ")[0] != part:
                    continue
                choice = chosen.split(" of ")[1] if " of " in chosen else default
                held = {member: choice if type_ == name else type_ for member, type_ in members[part].items()}
                self._parts[chosen] = {function: set(called) for function, called in self._parts[part].items()}
                inner[chosen] = inner[part]
                with_choice[chosen] = held
        members |= with_choice
        changed = True
        while changed:  # a part may contain other parts
            changed = False
            for name, calls in inner.items():
                for function, member, method in calls:
                    called = self._parts.get(members[name].get(member, ""), {}).get(method or "forward", set())
                    changed |= not called <= self._parts[name][function]
                    self._parts[name][function] |= called

    @staticmethod
    def _classes(source: Source) -> list[tuple[str, list[Line]]]:
        """The lines of every class of a file; "" for lines outside of classes."""
        classes, name, lines = [], "", []
        for line in source.lines:
            begins = re.match(r"(?:class|struct) (\w+)", line.text)
            if begins or line.text == "};":
                classes.append((name, lines))
                name, lines = begins.group(1) if begins else "", []
            lines.append(line)
        return classes + [(name, lines)]

    def _members(self, lines: list[Line]) -> dict[str, str]:
        """Maps members of a class to their types, e.g. "AttentionCore of AdditiveScores" for a part with a choice. A
        class that passes its own template parameter on counts as a part without a choice."""
        members = {}
        for line in lines:
            declared = re.match(r"  (\w+)<Device, T(?:, (\w+))?> ([\w, ]+);", line.code)
            if declared:
                part, choice, names = declared.groups()
                members |= {name: part if choice in (None, *self._open) else f"{part} of {choice}" for name in names.split(", ")}
        return members

    @staticmethod
    def _by_function(lines: list[Line]) -> Iterator[tuple[str, str]]:
        """Pairs of function name and line of code."""
        name = None
        for line in lines:
            begins = re.match(r"(?:  )?(?!return|else)[\w<>:*&, ]+?[ *&](\w+)\(", line.code)
            if begins and line.indent <= 2 and not line.code.endswith(";"):
                name = begins.group(1)
            if name:
                yield name, line.code

    def _layers_in(self, code: str) -> set[str]:
        """Layers whose functions the code calls with a device, f<Device>. A block may have functions with the same
        names."""
        return {self._functions[word] for word in re.findall(r"\w+(?=<)", code) if word in self._functions}

    def _methods(self, lines: list[Line]) -> dict[str, set[str]]:
        """Layers that each function of a class calls."""
        methods: dict[str, set[str]] = {}
        calls: dict[str, set[str]] = {}
        for name, code in self._by_function(lines):
            called = methods.setdefault(name, set())
            calls.setdefault(name, set())
            called |= self._layers_in(code)
            calls[name] |= set(re.findall(r"\w+", code))
        for name in methods:  # a function may call another function of its class
            for other in calls[name] & methods.keys():
                methods[name] |= methods[other]
        return methods

    def of(self, block: Source, statement: range) -> list[str]:
        """The layers, sorted, that a statement of a block calls."""
        text = " ".join(block.lines[number - 1].code for number in statement)
        members = self._members(block.lines)
        own = {name: {layer} for name, layer in SUMS.items()} | self._parts[""]
        for of_class, lines in self._classes(block):
            for name, called in self._parts.get(of_class, self._methods(lines)).items():
                own[name] = own.get(name, set()) | called
        layers = self._layers_in(text)
        for name in re.findall(r"(?<![\w.:])(\w+)(?:<[\w, ]+>)?\(", text):
            layers |= own.get(name, set())
        for member, method in MEMBER.findall(text):
            part = self._parts.get(members.get(member, ""), {})
            layers |= part.get(method or "forward", set())
        return sorted(layers)

    def of_block(self, room: Room) -> list[str]:
        """Layers that the tagged lines of a block call, in the order of the first equation that calls each layer."""
        tagged = [(int(tag.split(".")[1]), line.number) for line in room.header.lines for tag in line.tags]
        statements = (room.header.statement(number) for _, number in sorted(tagged))
        return list(dict.fromkeys(layer for statement in statements for layer in self.of(room.header, statement)))
