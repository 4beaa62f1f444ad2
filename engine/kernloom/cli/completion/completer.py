"""Candidates for the word under the cursor of a command line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from kernloom.base.errors import KernloomError
from kernloom.base.places import Places, find_places
from kernloom.cli.completion import stored
from kernloom.cli.completion.candidates import Candidate, chosen_from, files_after
from kernloom.cli.completion.config_folders import groups_for
from kernloom.cli.completion.constants import Call, constants
from kernloom.cli.completion.overrides import OverrideCompleter
from kernloom.cli.hydra_flags import flags_with_hydra, full_name
from kernloom.cli.invocation import MULTIRUN, PLAIN_OUTPUTS, Flag
from kernloom.cli.main import COMMANDS
from kernloom.config.groups import Groups

PROGRAM_FLAGS = {"--help": "the commands", "--version": "the version of Kernloom"}
_OUTPUT = "output="


@dataclass(frozen=True)
class Syntax:
    """The words that a command takes."""

    flags: dict[str, Flag]
    sweeps: bool
    report: str
    """The name of its reports, which formats serve."""
    actions: dict[str, str]
    """Its first words that are not overrides or filters -> what they do."""

    def flag(self, word: str) -> Flag | None:
        """The flag that a word is, by its full or short name."""
        return self.flags.get(full_name(word)) if word.startswith("-") else None


def syntax_of(command: str) -> Syntax:
    """What the module of a command declares, without importing it."""
    declared = constants(f"cli/commands/{command}")
    flags = {
        str(name): Flag(*call.arguments, **call.keywords)
        for name, call in declared.get("FLAGS", {}).items()
        if isinstance(call, Call)
    }
    sweeps, reads_configs = declared.get("SWEEPS", False), declared.get("READS_CONFIGS", False)
    return Syntax(
        flags_with_hydra(flags, sweeps=sweeps, reads_configs=reads_configs),
        sweeps,
        declared.get("REPORT", ""),
        declared.get("ACTIONS", {}),
    )


@dataclass(frozen=True)
class Line:
    """A command line behind the name of the program, up to the word under the cursor and after."""

    before: Sequence[str]
    typed: str
    """The word under the cursor, as far as it is typed."""
    after: Sequence[str] = ()

    @property
    def command(self) -> str:
        return self.before[0] if self.before else ""


def complete(line: Line, *, describe: bool) -> list[Candidate]:
    """All candidates, whether or not they begin as the typed word does."""
    if not line.before:
        found = [Candidate(name, about=about) for name, about in COMMANDS.items()]
        return found + [Candidate(flag, about=about) for flag, about in PROGRAM_FLAGS.items()]
    if line.command not in COMMANDS:
        return []
    return _Completer(line, syntax_of(line.command), describe).candidates()


@dataclass(frozen=True)
class _Completer:
    """Completes a word of one command."""

    line: Line
    syntax: Syntax
    describe: bool

    def candidates(self) -> list[Candidate]:
        typed = self.line.typed
        waiting = self._flag_before()
        if waiting:
            return self._values(waiting, typed)
        if typed.startswith("--") and "=" in typed:
            name, _, value = typed[2:].partition("=")
            return [one.after(f"--{name}=") for one in self._values(name, value)]
        if typed.startswith("-"):
            return self._flags()
        if typed.startswith(_OUTPUT):
            found = chosen_from(self._formats(), typed.removeprefix(_OUTPUT))
            return [one.after(_OUTPUT) for one in found]
        return self._words(typed)

    def _flag_before(self) -> str:
        """The flag whose value is under the cursor, if any."""
        *_, last = self.line.before
        flag = self.syntax.flag(last)
        return full_name(last) if flag and flag.value else ""

    def _flags(self) -> list[Candidate]:
        found = [Candidate(f"--{name}", about=f.about) for name, f in self.syntax.flags.items()]
        if self.syntax.sweeps:
            found += [Candidate(flag, about="sweep over several values") for flag in MULTIRUN]
        return [*found, Candidate("--help", about="what the command does, and its flags")]

    def _values(self, flag: str, typed: str) -> list[Candidate]:
        """Candidates for the value of a flag, by the name that the help gives it."""
        if flag == "package":
            return self._overrides().packages(typed)
        match self.syntax.flags.get(flag, Flag("")).value:
            case "FILE" | "FOLDER":
                return files_after()
            case choices if "|" in choices:
                return [Candidate(choice) for choice in choices.split("|")]
            case "NAME":
                return [Candidate(name) for name in self._baselines()]
            case "SCENE":
                folders = find_places().folders("scenes")
                names = {path.stem for folder in folders for path in folder.glob("*.yaml")}
                return [Candidate(name) for name in ("all", *sorted(names))]
            case "KEY":
                return stored.keys(typed, several=False, signed=flag == "sort")
            case "KEYS" | "ROWS":
                return stored.keys(typed, several=True)
            case "VERDICTS":
                return chosen_from(constants("measure/comparison").get("VERDICTS", ()), typed)
            case "'WORDS'":
                return self._quoted(typed)
        return []

    def _words(self, typed: str) -> list[Candidate]:
        match self.line.command:
            case "completion":
                return self._actions() if not self._positional else []
            case "targets" | "doctor":
                return [Candidate(_OUTPUT, "more")]
            case "recipe":
                return self._recipe(typed)
            case "results":
                return self._results(typed)
            case "tune" if any(word.startswith("space=") for word in [*self.line.before, typed]):
                return self._replay(typed)
            case "tune":
                return self._study(typed)
            case "compare" if "--baseline" in self.line.before:
                return stored.filters(typed, self._overrides())
            case "compare":
                files = files_after(yaml=True) if "=" not in typed else []
                return [*self._quoted(typed), *files]
        return self._overrides().candidates(typed)

    def _replay(self, typed: str) -> list[Candidate]:
        """Keys of `tune space=FILE`."""
        key, equals, value = typed.partition("=")
        if key == "space" and equals:
            return [one.after("space=") for one in files_after()]
        if key == "strategy" and equals:
            found = chosen_from(constants("tune/strategy").get("SHIPPED", {}), value)
            return [one.after("strategy=") for one in found]
        keys = ("strategy", "budget", "repeats", "seed", "objective", "output")
        return [] if equals else [Candidate(f"{name}=", "more") for name in keys]

    def _study(self, typed: str) -> list[Candidate]:
        """Keys of `tune` on a device, and overrides."""
        key, equals, value = typed.partition("=")
        if key == "export" and equals:
            return [one.after("export=") for one in files_after()]
        if key in ("strategy", "search.strategy") and equals:
            names = constants("tune/strategy").get("SHIPPED", {})
            return [one.after(f"{key}=") for one in chosen_from(names, value)]
        own = [] if equals else constants("cli/tuning/words").get("KEYS", ())
        return [
            *(Candidate(f"{name}=", "more") for name in own),
            *self._overrides().candidates(typed),
        ]

    def _recipe(self, typed: str) -> list[Candidate]:
        match self._positional:
            case []:
                return self._actions()
            case ["unpack"] | ["pack", _]:
                return files_after()
            case ["save", *_]:
                return [*stored.filters(typed, self._overrides()), *files_after(yaml=True)]
            case [_] | ["diff", _]:
                return files_after(yaml=True)
        return [Candidate(_OUTPUT, "more")]

    def _results(self, typed: str) -> list[Candidate]:
        found: list[Candidate] = []
        match self._positional:
            case ["repair"]:
                return [Candidate("store.path=", "more")] if "=" not in typed else files_after()
            case ["baseline"]:
                actions = constants("cli/saved_baselines").get("ACTIONS", {})
                return [Candidate(name, about=about) for name, about in actions.items()]
            case ["baseline", "save" | "show" | "remove"]:
                return [Candidate(name) for name in self._baselines()]
            case ["baseline", "list" | "remove", *_]:
                return [Candidate("store.path=", "more")]
            case [] if "--pivot" in self.line.before and "=" not in typed:
                found = stored.keys(typed, several=True)
            case []:
                found = self._actions()
        return [*found, *stored.filters(typed, self._overrides())]

    def _actions(self) -> list[Candidate]:
        return [Candidate(name, about=about) for name, about in self.syntax.actions.items()]

    def _quoted(self, typed: str) -> list[Candidate]:
        """Candidates for the last of several overrides in one word of `compare`. They depend on
        those before them and on those for all words, but not on other words."""
        before, space, last = typed.rpartition(" ")
        common = [
            value
            for flag, value in zip(self.line.before, self.line.before[1:], strict=False)
            if flag == "--with"
        ]
        overrides = self._overrides(" ".join([*common, before]).split())
        return [one.after(before + space) for one in overrides.candidates(last)]

    @property
    def _positional(self) -> list[str]:
        """The words before the cursor that are neither flags, nor their values, nor key=value."""
        found, waiting = list[str](), list(self.line.before[1:])
        while waiting:
            word = waiting.pop(0)
            if word.startswith("-"):
                flag = self.syntax.flag(word)
                if flag and flag.value and waiting:
                    waiting.pop(0)
            elif "=" not in word:
                found.append(word)
        return found

    def _formats(self) -> list[str]:
        """The formats of the command's reports, and those that other packages add."""
        if not self.syntax.report:
            return list(PLAIN_OUTPUTS)
        from importlib.metadata import entry_points

        declared = constants("report/formats/__init__").get("FORMATS")
        if not isinstance(declared, Call):
            return []
        shipped, group = declared.keywords["later"], declared.keywords["group"]
        serving = [name for name in shipped if self.syntax.report in reports_of(name)]
        return [*serving, *(entry.name for entry in entry_points(group=group))]

    def _baselines(self) -> list[str]:
        words = [*self.line.before, *self.line.after]
        return stored.baselines(words, self._overrides(), self._places)

    def _overrides(self, words: Sequence[str] | None = None) -> OverrideCompleter:
        """Completes overrides next to `words`: by default, next to those of the command line."""
        if words is None:
            words = [*self.line.before[1:], *self.line.after]
        everything = self.line.command in ("check", "results")
        return OverrideCompleter(self._groups, words, self.describe, every_workload=everything)

    @cached_property
    def _groups(self) -> Groups:
        return groups_for([*self.line.before, *self.line.after], self._places)

    @cached_property
    def _places(self) -> Places | None:
        try:
            return find_places()
        except KernloomError:
            return None


def reports_of(format_name: str) -> set[str]:
    """The commands that a shipped format serves."""
    declared = constants(f"report/formats/{format_name}").values()
    writers = {word for call in declared if isinstance(call, Call) for word in call.keywords}
    return {word.removesuffix("_file") for word in writers}
