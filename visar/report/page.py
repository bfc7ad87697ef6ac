"""Renders the templates of the reports and writes pages to disk."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from visar.report import wording
from visar.tensor_files import write_atomically


def _breakable(name: str) -> Markup:
    """A name that may be broken into lines after its underscores."""
    return Markup("_<wbr>").join(name.split("_"))


@lru_cache(maxsize=1)
def _environment() -> Environment:
    # Escaping is on for every template, whatever its name ends in: questions, words and file names are foreign text.
    environment = Environment(
        loader=PackageLoader("visar.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["px"] = lambda value: f"{value:.1f}".removesuffix(".0")
    for function in (
        _breakable,
        wording.counted,
        wording.number,
        wording.probability,
        wording.readable_token,
        wording.seconds,
        wording.short_number,
    ):
        environment.filters[function.__name__.strip("_")] = function
    return environment


def render(template: str, **values: object) -> Markup:
    """Fill ``templates/<template>.html.j2``; the result counts as safe when it is put into another template."""
    return Markup(_environment().get_template(f"{template}.html.j2").render(values))


def write_page(path: Path, page: Markup) -> None:
    """Write a page as UTF-8, complete or not at all. File names that are no text show their bytes as escapes.

    Raises:
        StoreError: The folder is not writable, or the disk is full.
    """
    write_atomically(path, page.encode("utf-8", errors="backslashreplace"))
