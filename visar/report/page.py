"""Renders the templates of the reports and writes pages to disk."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from visar.report import wording
from visar.tensor_files import write_atomically

_OWN = "visar.report"


def _breakable(name: str) -> Markup:
    """A name that may be broken into lines after its underscores."""
    return Markup("_<wbr>").join(name.split("_"))


@lru_cache
def _environment(package: str) -> Environment:
    # Escaping is on for every template, whatever its name ends in: questions, words and file names are foreign text.
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(name, "templates") for name in (package, _OWN)]),
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


@dataclass(frozen=True)
class Templates:
    """The templates of a package; what it lacks, such as ``base`` and ``style``, is taken from this one.

    Attributes:
        package: Has a folder ``templates``.
    """

    package: str

    def render(self, template: str, **values: object) -> Markup:
        """Fill ``<template>.html.j2``; the result counts as safe when it is put into another template."""
        return Markup(_environment(self.package).get_template(f"{template}.html.j2").render(values))


def render(template: str, **values: object) -> Markup:
    """:meth:`Templates.render` of this package's own templates."""
    return Templates(_OWN).render(template, **values)


def write_page(path: Path, page: Markup) -> None:
    """Write a page as UTF-8, complete or not at all. File names that are no text show their bytes as escapes.

    Raises:
        StoreError: The folder is not writable, or the disk is full.
    """
    write_atomically(path, page.encode("utf-8", errors="backslashreplace"))
