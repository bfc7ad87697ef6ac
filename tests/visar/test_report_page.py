"""Templates of other packages in the look of this one's."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.visar.report_reading import assert_self_contained, read
from visar.report.page import Templates


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A package with one template."""
    folder = tmp_path / "borrowing" / "templates"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").write_text("")
    (folder / "own.html.j2").write_text(
        '{% extends "base.html.j2" %}{% block title %}{{ name }}{% endblock %}'
        "{% block content %}<p>{{ name }}: {{ 1130|counted('page') }}</p>{% endblock %}"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    return "borrowing"


def test_a_package_fills_its_own_templates_around_the_common_base(package: str) -> None:
    html = Templates(package).render("own", name="<b>&")
    assert_self_contained(html)
    reading = read(html)
    assert reading.text("p") == ["<b>&: 1,130 pages"] and reading.text("title") == ["<b>&"]
    assert "--visar-chosen" in "".join(reading.text("style"))


def test_the_templates_of_a_package_are_not_seen_by_others(package: str) -> None:
    Templates(package).render("own", name="")
    with pytest.raises(LookupError):
        Templates("visar.report").render("own", name="")
