"""Arguments arrive as they were typed, and whatever a person did wrong is said in one line."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import example, given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf
from rich.console import Console

from tests.visar.commands import environment, run, run_here
from tests.visar.made_documents import draw_pdf, lines
from visar.command_line import config_folder, literal_argument, run_command, true_or_false, user_path, whole_number
from visar.errors import VisarError

# "key=null" takes a value back, as everywhere.
TYPED = st.one_of(st.text(), st.text(alphabet="\\'\"${}[]=,:#~ x\n")).filter(lambda text: text != "null")


def in_the_config(argument: str) -> object:
    """What the config holds in the end: Hydra's parser reads the argument, OmegaConf what came of it."""
    value = OverridesParser.create().parse_override(argument).value()
    return OmegaConf.create({"question": value}).question


@given(TYPED)
@example("")
@example('What\'s "net" income, [in] {2015} = ?')
@example("ends in a backslash \\")
@example("C:\\new\\'folder'\\")
@example("'quoted'")
@example('"quoted"')
@example("${oc.env:HOME} and \\${x} and \\\\${y} and ${")
@example("1e5")
@settings(max_examples=500)
def test_text_arrives_as_it_was_typed(text):
    assert in_the_config(literal_argument(f"question={text}", ("question",))) == text


@given(TYPED)
@settings(max_examples=15)
def test_text_arrives_in_a_composed_config_too(text):
    with initialize_config_dir(str(config_folder()), version_base="1.3"):
        argument = literal_argument(f"question={text}", ("document", "question"))
        config = compose("ask", overrides=[argument], return_hydra_config=True)
    assert config.question == text
    OmegaConf.to_container(config.hydra.overrides, resolve=True)


def test_other_arguments_are_left_to_hydra():
    for argument in ("selector=[visar,oracle]", "+question2=a", "~question", "question", "--help", "dpi=72"):
        assert literal_argument(argument, ("question",)) == argument
    assert in_the_config(literal_argument("question=null", ("question",))) is None
    assert in_the_config(literal_argument("+question=[a, b]", ("question",))) == "[a, b]"


@pytest.mark.parametrize("value", ["abc", "1.5", "true", "0", "-3", "null", "[1]"])
def test_settings_that_count_are_whole_numbers(value):
    config = OmegaConf.create(f"dpi: {value}")
    with pytest.raises(VisarError, match="dpi: expected a whole number of at least 1, got"):
        whole_number(config, "dpi")
    assert whole_number(OmegaConf.create("dpi: 72"), "dpi") == 72


@pytest.mark.parametrize("value", ["1", "null", "maybe", "'no'"])
def test_settings_that_are_on_or_off_are_nothing_else(value):
    with pytest.raises(VisarError, match="on: expected true or false, got"):
        true_or_false(OmegaConf.create(f"'on': {value}"), "on")
    assert true_or_false(OmegaConf.create("'on': false"), "on") is False


def test_the_home_folder_may_be_meant_and_may_be_unknown(monkeypatch, tmp_path):
    config = OmegaConf.create({"output": "~/a.html", "cache": "~nobody-of-that-name/cache"})
    monkeypatch.setenv("HOME", str(tmp_path))
    assert user_path(config, "output") == tmp_path / "a.html"
    with pytest.raises(VisarError, match="cache: ~nobody-of-that-name/cache: the home folder is unknown"):
        user_path(config, "cache")


# Real processes.


def test_a_missing_document_is_one_line(tmp_path):
    outcome = run("ask", "document=no such.pdf", "question=Who?", folder=tmp_path)
    assert outcome.error == "no such.pdf: no such file or folder; expected a PDF, an image or a folder of images"
    assert outcome.status == 2
    assert outcome.out == ""
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_selector_is_one_line_that_names_the_others(tmp_path):
    outcome = run("ask", "document=a.pdf", "question=Who?", "selector=visr", folder=tmp_path)
    assert outcome.error.startswith("selector=visr: no such choice; did you mean selector=visar? Expected one of gauss")
    assert "visar_approximate" in outcome.error
    assert outcome.status == 2
    assert list(tmp_path.iterdir()) == []


def test_help_shows_how_to_begin(tmp_path):
    outcome = run("eval", "--help", folder=tmp_path)
    assert outcome.status == 0
    assert "python -m visar.eval dataset=folder dataset.documents=FOLDER" in outcome.out
    assert "exp: sensitivity_leakage_weight" in outcome.out
    assert list(tmp_path.iterdir()) == []


# The same way in, in this process.


@pytest.fixture
def documents(tmp_path) -> Path:
    """Whatever cannot be read, and one document that can."""
    good = draw_pdf(tmp_path / "good.pdf", lines(["Revenue rose by 12.5 percent."]))
    draw_pdf(tmp_path / "secret.pdf", lines(["Nobody may read this."]), encrypt="password")
    (tmp_path / "empty.pdf").touch()
    (tmp_path / "truncated.pdf").write_bytes(good.read_bytes()[:700])
    (tmp_path / "text.pdf").write_text("Dear reader, this is no PDF.")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "notes.txt").write_text("no image")
    return tmp_path


BAD = {
    "no document": ((), "document: missing; expected document=FILE"),
    "no question": (("document=good.pdf",), "question: missing; expected question="),
    "blank question": (("document=good.pdf", "question= \t "), "question: missing; expected question="),
    "a question without visible signs": (("document=good.pdf", "question=\u200b"), "the question is empty"),
    "empty file": (("document=empty.pdf", "question=Who?"), "empty.pdf: the file is empty; expected a PDF"),
    "truncated PDF": (("document=truncated.pdf", "question=Who?"), "truncated.pdf: the PDF is truncated"),
    "encrypted PDF": (("document=secret.pdf", "question=Who?"), "secret.pdf: the PDF is encrypted"),
    "no PDF": (("document=text.pdf", "question=Who?"), "text.pdf: not a PDF"),
    "folder without images": (("document=folder", "question=Who?"), "folder: no images in this folder"),
    "arguments without keys": (("good.pdf", "Who signed it?"), "'good.pdf': expected key=value; --help"),
    "unknown key": (("document=good.pdf", "question=Who?", "dpis=3"), "dpis: no such setting; did you mean dpi?"),
    "a key that nobody reads": (("document=good.pdf", "question=Who?", "+quesiton=a"), "+quesiton: no such setting"),
    "a number for a group": (("document=good.pdf", "question=Who?", "selector=5"), "selector=5: no such choice; exp"),
    "broken syntax": (("document=good.pdf", "question=Who?", "dpi=[1"), "dpi=[1: no viable alternative"),
    "two selectors": (("document=good.pdf", "question=Who?", "selector=[visar,oracle]"), "selector: expected one"),
    "no selector": (("document=good.pdf", "question=Who?", "selector=[]"), "selector: expected at least one"),
    "setting of another selector": (
        ("document=good.pdf", "question=Who?", "+selectors.oracle.k=3"),
        "selectors.oracle: no such selector was chosen",
    ),
    "one value for all selectors": (
        ("document=good.pdf", "question=Who?", "selectors=5"),
        "selectors=5: selectors is a group of settings; write selectors.visar.top_patches=..., selectors.visar.",
    ),
    "no choice": (("document=good.pdf", "question=Who?", "encoder=null"), "encoder=null: no such choice; expected one"),
    "setting out of range": (
        ("document=good.pdf", "question=Who?", "selectors.visar.top_patches=0"),
        "top_patches: expected a whole number of at least 1, got 0",
    ),
    "argument that a class does not take": (
        ("document=good.pdf", "question=Who?", "+encoder.layers=3"),
        "encoder: TokenStates.__init__() got an unexpected keyword argument 'layers'",
    ),
    "dpi that is no number": (("document=good.pdf", "question=Who?", "dpi=high"), "dpi: expected a whole number"),
    "output that is a folder": (
        ("document=good.pdf", "question=Who?", "output=folder"),
        "output: folder is a folder; expected a file to write",
    ),
    "output below a file": (("document=good.pdf", "question=Who?", "output=text.pdf/a.html"), "text.pdf: cannot write"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_wrong_is_said_in_one_line(documents, case):
    arguments, expected = BAD[case]
    before = sorted(documents.rglob("*"))
    outcome = run_here("ask", *arguments, "ocr=none", "cache=cache", folder=documents)
    assert outcome.error.startswith(expected)
    assert outcome.status == 2
    assert [path for path in sorted(documents.rglob("*")) if "cache" not in path.parts] == before


def test_a_bug_keeps_its_traceback(documents, monkeypatch):
    monkeypatch.setattr("visar.ask.find_document", lambda path: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run_here("ask", "document=good.pdf", "question=Who?", folder=documents)


def test_options_of_hydra_keep_their_values(documents):
    outcome = run_here("ask", "--cfg", "job", "document=a, b.pdf", folder=documents)
    assert outcome.status == 0
    assert "document: a, b.pdf" in outcome.out and "top_patches: 50" in outcome.out


def test_an_interrupt_is_no_traceback(documents, monkeypatch):
    def interrupted(path: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("visar.ask.find_document", interrupted)
    outcome = run_here("ask", "document=good.pdf", "question=Who?", folder=documents)
    assert outcome.error == "interrupted; the same command continues where it stopped"
    assert outcome.status == 130


def test_a_warning_is_one_line_too(documents, capsys):
    def task(config: object) -> None:
        warnings.warn("something\nis doubtful", stacklevel=1)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["visar.ask"])
        patch.chdir(documents)
        run_command(task, config="ask")
    assert capsys.readouterr().err == "warning: something is doubtful\n"


# A reader that does not wait for the end, as head.


def status_unread(call: Callable[[], None]) -> tuple[int, str]:
    """Exit status and stderr of a call in a process of its own, whose standard output nobody reads."""

    def unread(errors: int) -> None:
        reading, writing = os.pipe()
        os.dup2(writing, 1)
        os.dup2(errors, 2)
        os.close(reading)
        os.close(writing)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
        sys.argv = ["visar.ask"]
        call()

    reading, writing = os.pipe()
    process = multiprocessing.get_context("fork").Process(target=unread, args=(writing,))
    process.start()
    os.close(writing)
    with os.fdopen(reading) as said:
        told = said.read()
    process.join()
    return process.exitcode, told


def test_help_that_nobody_reads_to_its_end_is_no_error(tmp_path):
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "visar.ask", "--help"],
        cwd=tmp_path,
        env=environment(),
        stdout=writing,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize("text", ["short", "long " * 100_000])
def test_a_command_ends_without_a_word_where_nobody_reads(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def print_plainly(config: object) -> None:
        sys.stdout.write(text)

    def print_richly(config: object) -> None:
        Console().print(text)
        raise AssertionError("goes on although nobody reads")

    for task in (print_plainly, print_richly):
        assert status_unread(lambda task=task: run_command(task, config="ask")) == (141, "")


def test_another_pipe_that_breaks_is_a_bug(documents, monkeypatch):
    def broken(path: Path) -> None:
        raise BrokenPipeError("of a worker")

    monkeypatch.setattr("visar.ask.find_document", broken)
    with pytest.raises(BrokenPipeError, match="of a worker"):
        run_here("ask", "document=good.pdf", "question=Who?", folder=documents)
