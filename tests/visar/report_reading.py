"""Reads the HTML of the reports back, strictly: what a browser would silently repair is an error here."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

_VOID = {"meta", "img", "input", "br", "wbr", "link"}


@dataclass
class Element:
    tag: str
    attributes: dict[str, str | None]
    text: str = ""
    inside: tuple[str, ...] = ()


@dataclass
class Reading(HTMLParser):
    """Every element of a page in order, each with the text anywhere inside it."""

    elements: list[Element] = field(default_factory=list)
    _open: list[Element] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"<{tag}> repeats an attribute"
        element = Element(tag, dict(attrs), inside=tuple(parent.tag for parent in self._open))
        self.elements.append(element)
        if tag not in _VOID:
            self._open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert any(parent.tag == "svg" for parent in self._open), f"<{tag}/> closes itself outside SVG"
        self.handle_starttag(tag, attrs)
        self._open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self._open and self._open[-1].tag == tag, f"</{tag}> closes {[parent.tag for parent in self._open]}"
        self._open.pop()

    def handle_data(self, data: str) -> None:
        for element in self._open:
            element.text += data

    def all(self, tag: str, **attributes: str) -> list[Element]:
        """Elements of a tag whose attributes have these values (``class_`` for ``class``); names are in lower case."""
        wanted = {name.rstrip("_").replace("_", "-"): value for name, value in attributes.items()}
        return [
            element
            for element in self.elements
            if element.tag == tag and all(element.attributes.get(name) == value for name, value in wanted.items())
        ]

    def text(self, tag: str, **attributes: str) -> list[str]:
        """Their texts with single spaces."""
        return [" ".join(element.text.split()) for element in self.all(tag, **attributes)]


def read(html: str) -> Reading:
    reading = Reading()
    reading.feed(html)
    reading.close()
    assert not reading._open, f"never closed: {[element.tag for element in reading._open]}"
    return reading


def assert_self_contained(html: str) -> None:
    """No script, no event handler, no address outside the file, and a policy that forbids them."""
    reading = read(html)
    policy = [meta.attributes["content"] for meta in reading.all("meta", http_equiv="Content-Security-Policy")]
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'; img-src data:"]
    ids = [element.attributes["id"] for element in reading.elements if "id" in element.attributes]
    assert len(ids) == len(set(ids))
    for element in reading.elements:
        assert element.tag not in ("script", "link", "iframe", "object", "embed", "base", "form")
        for name, value in element.attributes.items():
            assert not name.startswith("on"), f"{element.tag} has {name}"
            assert "url(" not in (value or "")
            if name == "src" or (name == "href" and element.tag == "image"):
                assert (value or "").startswith("data:image/"), f"{element.tag} loads {value}"
            elif name == "href":
                assert (value or "").startswith("#") and (value or "")[1:] in ids, f"{element.tag} leads to {value}"
    assert "@import" not in html
    assert not any("url(" in style for style in reading.text("style"))
