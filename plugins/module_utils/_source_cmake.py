# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""A small reader of CMake: enough to ask what vLLM's CPU build would do on a given host, without CMake.

``parse`` splits a file into commands. ``Rehearsal`` walks through them with made-up CPU flags, environment and
compiler, follows ``if`` chains and variables, and notes what the facts need: messages, declared sources, targets.
Functions and loops are passed over; the two functions that decide on the ISA are played by their meaning.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

__all__ = ("Argument", "Command", "Rehearsal", "compiler_floors", "parse", "version_key")

TOKEN = re.compile(
    r"""\#\[(?P<c>=*)\[.*?\](?P=c)\] | \#[^\n]*
      | \[(?P<b>=*)\[(?P<bracket>.*?)\](?P=b)\]
      | "(?P<quoted>(?:\\.|[^"\\])*)"
      | (?P<open>\() | (?P<close>\))
      | (?P<plain>(?:\\.|\$\{[^}]*\}|\$ENV\{[^}]*\}|ENV\{[^}]*\}|[^\s()"#\\])+)
    """,
    re.S | re.X,
)
REFERENCE = re.compile(r"\$(ENV)?\{([^${}]*)\}")
FALSE_WORDS = ("", "0", "OFF", "NO", "FALSE", "N", "IGNORE", "NOTFOUND")
TRUE_WORDS = ("1", "ON", "YES", "TRUE", "Y")
COMPILER = "CMAKE_CXX_COMPILER_VERSION"


@dataclass(frozen=True)
class Argument:
    """One argument of a command; a quoted one is text even where it is also the name of a variable."""

    text: str
    quoted: bool = False


@dataclass(frozen=True)
class Command:
    """A command with its arguments and the line it starts in."""

    name: str
    arguments: tuple[Argument, ...]
    line: int

    @property
    def texts(self) -> list[str]:
        """The arguments as texts."""
        return [argument.text for argument in self.arguments]


def parse(text: str) -> list[Command]:
    """Split CMake code into its commands."""
    commands: list[Command] = []
    name, name_at, depth = "", 0, 0
    arguments: list[Argument] = []
    for match in TOKEN.finditer(text):
        if depth == 0 and match["plain"]:
            name, name_at = match["plain"].lower(), match.start()
        elif match["open"]:
            depth += 1
            if depth > 1:
                arguments.append(Argument("("))
        elif match["close"] and depth:
            depth -= 1
            if depth:
                arguments.append(Argument(")"))
            else:
                commands.append(Command(name, tuple(arguments), text.count("\n", 0, name_at) + 1))
                arguments = []
        elif depth and (match["quoted"] is not None or match["bracket"] is not None):
            body = match["quoted"] if match["quoted"] is not None else match["bracket"]
            arguments.append(Argument(body, True))
        elif depth and match["plain"]:
            arguments.append(Argument(match["plain"]))
    return commands


def version_key(text: str) -> tuple[int, ...]:
    """Return a version as numbers that compare, without trailing zeros."""
    numbers = [int(part) for part in re.findall(r"\d+", text)]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def compiler_floors(commands: list[Command]) -> list[str]:
    """Return every version that some condition compares the compiler's version with, lowest first."""
    found = set()
    for command in commands:
        texts = command.texts
        for index, text in enumerate(texts[:-2]):
            if text == COMPILER and texts[index + 1].startswith("VERSION_"):
                found.add(texts[index + 2])
    return sorted((text for text in found if re.fullmatch(r"[\d.]+", text)), key=version_key)


@dataclass
class Rehearsal:
    """What a host with these CPU flags, environment and g++ would meet in the build files."""

    flags: str
    compiler: str = "99"
    environment: dict[str, str] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    messages: list[tuple[str, str, int]] = field(default_factory=list)
    declared: list[Command] = field(default_factory=list)
    targets: dict[str, int] = field(default_factory=dict)
    links: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.variables = {
            "CMAKE_SYSTEM_NAME": "Linux",
            "CMAKE_SYSTEM_PROCESSOR": "x86_64",
            "CMAKE_CXX_COMPILER_ID": "GNU",
            COMPILER: self.compiler,
            "VLLM_TARGET_DEVICE": "cpu",
            **self.variables,
        }

    def run(self, commands: list[Command]) -> Rehearsal:
        """Walk through the commands in order."""
        taken: list[bool] = []  # per open if: whether one of its branches was entered
        active: list[bool] = []
        skipped = 0
        for command in commands:
            name = command.name
            if name in ("function", "macro", "foreach", "while"):
                skipped += 1
            elif name in ("endfunction", "endmacro", "endforeach", "endwhile"):
                skipped -= 1
            elif skipped:
                continue
            elif name == "if":
                enter = all(active) and self.holds(command.arguments)
                taken.append(enter)
                active.append(enter)
            elif name in ("elseif", "else") and taken:
                open_here = all(active[:-1]) and not taken[-1]
                active[-1] = open_here and (name == "else" or self.holds(command.arguments))
                taken[-1] = taken[-1] or active[-1]
            elif name == "endif" and taken:
                taken.pop()
                active.pop()
            elif all(active):
                self.perform(command)
        return self

    def perform(self, command: Command) -> None:
        """Do what one command means here; most mean nothing."""
        texts = [self.expand(text) for text in command.texts]
        if command.name == "set" and texts:
            self.variables[texts[0]] = ";".join(_values(texts[1:]))
        elif command.name == "list" and texts[:1] == ["APPEND"] and len(texts) > 1:
            self.variables[texts[1]] = ";".join(filter(None, [self.variables.get(texts[1], ""), *texts[2:]]))
            if "LIBS" in texts[1]:
                self.links.update(texts[2:])
        elif command.name == "message" and texts:
            self.messages.append((texts[0], " ".join(texts[1:]), command.line))
        elif command.name in ("fetchcontent_declare", "fetchcontent_populate"):
            self.declared.append(Command(command.name, tuple(map(Argument, texts)), command.line))
        elif command.name in ("define_gpu_extension_target", "define_extension_target") and texts:
            self.targets[texts[0]] = command.line
        else:
            self.play(command.name, texts)

    def play(self, name: str, texts: list[str]) -> None:
        """Play the commands that ask the host."""
        if name == "find_isa" and len(texts) > 1:
            self.variables[texts[-1]] = "ON" if texts[-2] in self.flags else "OFF"
        elif name == "is_avx512_disabled" and texts:
            off = self.environment.get("VLLM_CPU_DISABLE_AVX512") == "true"
            self.variables[texts[0]] = "ON" if off else "OFF"
        elif name == "check_sysctl" and texts:
            self.variables[texts[-1]] = "OFF"
        elif name == "execute_process":
            for word, value in (("RESULT_VARIABLE", "0"), ("OUTPUT_VARIABLE", self.flags)):
                if word in texts[:-1]:
                    self.variables[texts[texts.index(word) + 1]] = value
        elif name == "check_cxx_compiler_flag" and len(texts) > 1:
            self.variables[texts[1]] = "1"

    def expand(self, text: str) -> str:
        """Replace references to variables and to the environment, innermost first."""
        while True:
            replaced = REFERENCE.sub(
                lambda match: (self.environment if match[1] else self.variables).get(match[2], ""), text
            )
            if replaced == text:
                return text
            text = replaced

    # --- conditions: NOT binds strongest, then comparisons, then AND, then OR ------------------------------------

    def holds(self, arguments: tuple[Argument, ...]) -> bool:
        """Whether a condition is true."""
        self._rest = [Argument(self.expand(item.text), item.quoted) for item in arguments]
        return self._either()

    def _either(self) -> bool:
        result = self._both()
        while self._rest and self._rest[0].text == "OR":
            self._rest.pop(0)
            other = self._both()
            result = result or other
        return result

    def _both(self) -> bool:
        result = self._single()
        while self._rest and self._rest[0].text == "AND":
            self._rest.pop(0)
            other = self._single()
            result = result and other
        return result

    def _single(self) -> bool:
        if not self._rest:
            return False
        first = self._rest.pop(0)
        if first.text == "NOT" and not first.quoted:
            return not self._single()
        if first.text == "(" and not first.quoted:
            inside = self._either()
            if self._rest and self._rest[0].text == ")":
                self._rest.pop(0)
            return inside
        if first.text in ("DEFINED", "EXISTS", "IS_DIRECTORY", "TARGET", "COMMAND", "POLICY") and self._rest:
            return self._exists(first.text, self._rest.pop(0).text)
        if self._rest and re.fullmatch(
            r"(STR|VERSION_)?(EQUAL|LESS|GREATER)(_EQUAL)?|MATCHES|IN_LIST", self._rest[0].text
        ):
            operator = self._rest.pop(0).text
            other = self._rest.pop(0) if self._rest else Argument("")
            return _compare(self._value(first), operator, self._value(other))
        return self._truth(first)

    def _exists(self, test: str, name: str) -> bool:
        if test != "DEFINED":
            return False
        match = re.fullmatch(r"ENV\{(.*)\}", name)
        return match[1] in self.environment if match else name in self.variables

    def _value(self, argument: Argument) -> str:
        return argument.text if argument.quoted else self.variables.get(argument.text, argument.text)

    def _truth(self, argument: Argument) -> bool:
        word = argument.text.upper()
        if word in TRUE_WORDS or word in FALSE_WORDS or argument.quoted:
            return word in TRUE_WORDS
        value = self.variables.get(argument.text, "").upper()
        return value not in FALSE_WORDS and not value.endswith("-NOTFOUND")


def _values(texts: list[str]) -> list[str]:
    """Return the values that ``set`` was given, without what follows them."""
    for index, text in enumerate(texts):
        if text in ("CACHE", "PARENT_SCOPE"):
            return texts[:index]
    return texts


def _compare(left: str, operator: str, right: str) -> bool:
    if operator == "MATCHES":
        try:
            return re.search(right, left) is not None
        except re.error:
            return False
    if operator == "IN_LIST":
        return left in right.split(";")
    if operator.startswith("STR"):
        a, b = left, right
        return {"EQUAL": a == b, "LESS": a < b, "GREATER": a > b}.get(operator[3:], False)
    x, y = version_key(left), version_key(right)
    bare = operator.removeprefix("VERSION_")
    return {
        "EQUAL": x == y,
        "LESS": x < y,
        "GREATER": x > y,
        "LESS_EQUAL": x <= y,
        "GREATER_EQUAL": x >= y,
    }.get(bare, False)
