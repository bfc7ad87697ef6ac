"""What the commands share: where the configs lie, arguments taken as they are typed, and errors of one line."""

from __future__ import annotations

import functools
import importlib
import io
import os
import re
import select
import sys
import textwrap
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import hydra
from hydra.errors import HydraException, InstantiationException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from rich.console import Console

from visar.config_keys import CommandKeys, value_of_group, wrong_argument
from visar.errors import VisarError

_FAILED, _INTERRUPTED = 2, 130
# As shells have it of a program that ends by SIGPIPE: 128 + 13. Not 0, since a part of the work may not have been done,
# and not 1, which commands give a meaning of their own.
_UNREAD = 141
_STDOUT = 1
_HELP_OPTIONS = ("--help", "-h")
_HELP_WIDTH = 118


def config_folder(package: str = "visar") -> Path:
    """The folder of a package's YAML files: beside the code in an installed wheel, at the top of a checkout."""
    code = Path(str(importlib.import_module(package).__file__)).parent
    return code / "configs" if (code / "configs").is_dir() else code.parent / "configs" / package


def literal_argument(argument: str, keys: Sequence[str]) -> str:
    """Quote the value of ``key=value`` so that the config holds exactly what was typed, whatever signs are in it.

    Two grammars read the value: Hydra's, which takes commas, brackets and quotes for its own, and OmegaConf's, which
    replaces ``${...}``. Arguments of other keys stay as they are, and so does ``key=null``, which takes a value back.
    """
    key, separator, value = argument.partition("=")
    if not separator or key.lstrip("+") not in keys or value == "null":
        return argument
    # OmegaConf: in front of "${" a backslash escapes, and backslashes before that one count double.
    value = re.sub(r"(\\*)\$\{", r"\1\1\\${", value)
    # Hydra: in a quoted value the same holds for quotes, the closing one included.
    return f"{key}='" + re.sub(r"(\\*)'", r"\1\1\\'", value + "'")[:-2] + "'"


def run_command(
    task: Callable[[DictConfig], None], *, config: str, literal: Sequence[str] = (), package: str = "visar"
) -> None:
    """Run a command on its config and the arguments of the process.

    Whatever the user can mend is shown as one line on stderr that begins with ``error:``, with exit status 2. Where
    nobody reads on, as after ``| head``, the command ends without a word and with exit status 141.

    Args:
        task: The command. It may raise :class:`VisarError`.
        config: Name of the top YAML file.
        literal: Keys whose values are taken as typed, without Hydra's grammar.
        package: Whose command it is, and whose configs.
    """
    for stream in (sys.stdout, sys.stderr):
        # A file name that is no text, or a terminal that is not UTF-8, must not end a run when it is printed.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    warnings.showwarning = _show_warning
    # Else Hydra prints what goes wrong before the task begins by itself, over many lines.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    begun = False

    @functools.wraps(task)
    def guarded(config: DictConfig) -> None:
        nonlocal begun
        begun = True
        # Guarded itself too: around it Hydra would say which overrides it ran with.
        with _short_errors():
            task(config)

    with _short_errors():
        folder = config_folder(package)
        arguments, settings = _checked_arguments(sys.argv[1:], literal)
        names = CommandKeys.read(folder, config)
        # Of what lies in folders that the user adds nothing is known.
        known = not any("hydra.searchpath" in argument or "--config" in argument for argument in arguments)
        if known and (told := names.unread(settings) or value_of_group(settings, names, folder, config)):
            raise VisarError(told)
        sys.argv[1:] = _with_own_groups(arguments, settings, folder / f"{config}.yaml", names)
        try:
            hydra.main(version_base="1.3", config_path=str(folder), config_name=config)(guarded)()
        except OverrideParseException:
            raise
        except (HydraException, ValueError) as error:
            # Of Hydra's own they say what it cannot make of the arguments; those of the task are bugs.
            if begun or isinstance(error, OmegaConfBaseException):
                raise
            told = _told_by_hydra(error) if isinstance(error, HydraException) else str(error)
            _stop((wrong_argument(settings, folder, config) if known else None) or told)


def result_console(*, highlight: bool = True, quiet: bool = False) -> Console:
    """The console on which a command shows its results.

    Args:
        highlight: Colour numbers and the like.
        quiet: Show nothing, as for all but one of several processes.
    """
    # Piped into a file there is no width to keep to, and cut columns would be of no use there.
    return Console(width=None if sys.stdout.isatty() else 160, emoji=False, highlight=highlight, quiet=quiet)


def chosen_selectors(config: DictConfig) -> DictConfig:
    """The configs of the selectors by name.

    Raises:
        VisarError: There is none, or one without a class, such as a setting of a selector that was not chosen.
    """
    if not config.get("selectors"):
        raise VisarError("selector: expected at least one, got none; write selector=NAME")
    for name, selector in config.selectors.items():
        if "_target_" not in selector:
            raise VisarError(f"selectors.{name}: no such selector was chosen; write selector=[{name}] or a _target_")
    return config.selectors


def whole_number(config: DictConfig, name: str) -> int:
    """A setting that counts something.

    Raises:
        VisarError: It is no whole number of at least 1.
    """
    value = config[name]
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise VisarError(f"{name}: expected a whole number of at least 1, got {value!r}")
    return value


def user_path(config: DictConfig, name: str) -> Path:
    """A setting that names a file or folder, ``~`` replaced by the home folder.

    Raises:
        VisarError: The home folder is unknown, as it is for some services and containers.
    """
    try:
        return Path(str(config[name])).expanduser()
    except RuntimeError as error:
        raise VisarError(f"{name}: {config[name]}: the home folder is unknown; write the path out in full") from error


def true_or_false(config: DictConfig, name: str) -> bool:
    """A setting that is on or off. Any other text would count as on.

    Raises:
        VisarError: It is neither true nor false.
    """
    if not isinstance(config[name], bool):
        raise VisarError(f"{name}: expected true or false, got {config[name]!r}")
    return config[name]


def _checked_arguments(arguments: Sequence[str], literal: Sequence[str]) -> tuple[list[str], list[str]]:
    """All of them as Hydra is to read them, and those of them that are settings rather than options."""
    checked: list[str] = []
    settings: list[str] = []
    for argument in arguments:
        value_of_option = checked and checked[-1].startswith("--") and "=" not in checked[-1]
        if "=" not in argument and not argument.startswith(("-", "~")) and not value_of_option:
            raise VisarError(f"{argument!r}: expected key=value; --help shows the keys")
        # The group stands in the list of defaults, where Hydra allows no second entry.
        checked.append(literal_argument(argument[argument.startswith("+exp=") :], literal))
        if not argument.startswith("-") and ("=" in argument or argument.startswith("~")):
            settings.append(checked[-1])
    return checked, settings


def _with_own_groups(arguments: list[str], settings: Sequence[str], file: Path, names: CommandKeys) -> list[str]:
    """Where help is asked for, let it name the groups of this command: Hydra names all of the package."""
    if not any(option in arguments for option in _HELP_OPTIONS):
        return arguments
    key = "hydra.help.template"
    lines = (
        textwrap.fill(
            f"{group}: {', '.join(choices)}",
            _HELP_WIDTH,
            initial_indent="  ",
            subsequent_indent="    ",
            break_on_hyphens=False,
        )
        for group, choices in names.groups.items()
    )
    template = OmegaConf.load(file).hydra.help.template.replace("$APP_CONFIG_GROUPS", "\n".join(lines) + "\n")
    # Beside the other settings: options may not part them.
    place = arguments.index(settings[0]) if settings else len(arguments)
    return [*arguments[:place], literal_argument(f"{key}={template}", [key]), *arguments[place:]]


@contextmanager
def _short_errors() -> Iterator[None]:
    try:
        try:
            yield
        finally:
            # Else what is left fails to be written when Python ends, which then complains. None: it was closed before.
            if sys.stdout is not None:
                sys.stdout.flush()
    except BrokenPipeError:
        # It may as well be another pipe, and a bug.
        if not _nobody_reads():
            raise
        _end_unread()
    except SystemExit as end:
        # So rich ends a program.
        if isinstance(end.__context__, BrokenPipeError):
            _end_unread()
        raise
    except VisarError as error:
        _stop(str(error))
    except InstantiationException as error:
        _stop(_told_by_object(error))
    except HydraException as error:
        _stop(_told_by_hydra(error))
    except OmegaConfBaseException as error:
        _stop(str(error).splitlines()[0])
    except KeyboardInterrupt:
        _stop("interrupted; the same command continues where it stopped", status=_INTERRUPTED)


def _told_by_object(error: InstantiationException) -> str:
    """Why an object of the config could not be made."""
    if isinstance(error.__cause__, VisarError):
        return str(error.__cause__)
    place = re.search(r"full_key: (.*)", str(error))
    return f"{place[1]}: {error.__cause__}" if place and error.__cause__ else str(error)


def _told_by_hydra(error: HydraException) -> str:
    """Hydra's message and its cause without the paragraphs on search paths and grammar, which help nobody here."""
    if isinstance(error, OverrideParseException):
        return f"{error.override}: {error.message.splitlines()[0]}"
    told = str(error) + (f"\n{error.__cause__}" if isinstance(error.__cause__, OmegaConfBaseException) else "")
    told = re.split(r"\nConfig search path:|\nSee https:|\n\s*full_key:", told)[0]
    joined = "; ".join(line.strip() for line in told.splitlines() if line.strip())
    return joined.replace(":;", ":").replace(".;", ";")


def _nobody_reads() -> bool:
    """Whether standard output is a pipe whose reader is gone."""
    poll = select.poll()
    poll.register(_STDOUT, 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


def _end_unread() -> None:
    # What is still in the buffer goes nowhere.
    os.dup2(os.open(os.devnull, os.O_WRONLY), _STDOUT)
    raise SystemExit(_UNREAD)


def _show_warning(message: Warning | str, *_place: object) -> None:
    _print("yellow", "warning", str(message))


def _stop(message: str, status: int = _FAILED) -> None:
    _print("bold red", "error", message)
    raise SystemExit(status)


def _print(style: str, kind: str, message: str) -> None:
    console = Console(stderr=True, soft_wrap=True, highlight=False, emoji=False)
    console.print(f"[{style}]{kind}:[/]", end=" ")
    console.print(" ".join(message.splitlines()), markup=False)
