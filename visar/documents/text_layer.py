"""From the characters of a PDF page to its words, and whether they are the page's text at all.

A word is a run of characters without white space between them. PDFium itself puts spaces and line ends where the layout
has gaps: dividing by distance too was tried on 1,130 pages, and divided nothing but dots and quotation marks.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

import numpy as np

from visar.documents.page_characters import PageCharacters
from visar.records import Word

# Stamps of courts, libraries and scanners ("Case ... Filed ... Page 3 of 16") have 50 to 150 characters.
STAMP_CHARACTERS = 200
SCAN_COVERAGE = 0.8
# Letters printed twice with a small shift look bold; real double letters stand side by side.
OVERPRINT_OVERLAP = 0.5
GRID = 50
BOX_DIGITS = 6  # a thousandth of a pixel on a page of 1,000 pixels; keeps the cached text small
JOINERS = "\u200c\u200d"  # they shape Persian and Indic words and belong to them


@dataclass(frozen=True)
class TextLayer:
    """The words of a page's text layer, in the order of the file.

    Attributes:
        words: Boxes are clipped to the page. A word divided by a hyphen between two lines is one word again, with the
            box of its first part; the hyphen stays before a capital letter or a digit.
        outside: How many words stand wholly outside the visible page and were left out.
        readable: Characters of ``words``.
        unreadable: Glyphs on the page whose font gives no Unicode for them, or a private one. They are in no word.
        image_coverage: Share of the page that images cover; measured on pages with little text only, else 0.
    """

    words: tuple[Word, ...]
    outside: int
    readable: int
    unreadable: int
    image_coverage: float

    @property
    def fault(self) -> str | None:
        """Why these words are not the page's text, for people; None where they are.

        A page has no usable text layer if no character of it is readable; if more than half are unreadable (fonts
        without Unicode); or if it is a scan with a stamp on it: fewer than 200 readable characters on a page that
        images cover to four fifths or more. The figures part the 1,130 pages of 25 documents of MMLongBench-Doc, among
        them court scans with a stamped header, slides with a background picture and a report in a garbled font.
        """
        if self.readable == 0:
            return "no readable characters"
        if self.unreadable > self.readable:
            return f"{self.unreadable} of {self.readable + self.unreadable} characters without Unicode"
        if self.readable < STAMP_CHARACTERS and self.image_coverage >= SCAN_COVERAGE:
            return f"only {self.readable} characters on a page that images cover to {self.image_coverage:.0%}"
        return None


def read_text_layer(characters: PageCharacters) -> TextLayer:
    """Group the characters of a page into words."""
    codes, places = np.unique(characters.codes, return_inverse=True)
    texts = [_text_of(code) for code in codes.tolist()]
    is_text = np.array([text is not None for text in texts], dtype=bool)[places] & ~characters.unmapped
    pieces = [texts[place] if known else "" for place, known in zip(places.tolist(), is_text.tolist(), strict=True)]
    for index in np.flatnonzero(_overprints(characters)).tolist():
        pieces[index] = ""

    scale = np.array([*characters.size, *characters.size])
    boxes = characters.boxes / scale
    on_page = (boxes[:, :2] <= 1).all(axis=1) & (boxes[:, 2:] >= 0).all(axis=1)
    runs = _runs(pieces, characters.line_end_hyphens.tolist())
    corners, visible = _boxes_of_runs(boxes, on_page, [(start, stop) for _, start, stop in runs])
    words = tuple(
        Word(text, tuple(box)) for (text, _, _), box, seen in zip(runs, corners, visible, strict=True) if seen
    )
    return TextLayer(
        words=words,
        outside=len(runs) - len(words),
        readable=sum(len(word.text) for word in words),
        unreadable=int((~is_text & ~characters.line_end_hyphens & on_page).sum()),
        image_coverage=_coverage(characters.image_boxes / scale),
    )


def _boxes_of_runs(
    boxes: np.ndarray, on_page: np.ndarray, spans: list[tuple[int, int]]
) -> tuple[list[list[float]], list[bool]]:
    """The box around each span of characters, clipped to the page, and whether any of them is on the page."""
    if not spans:
        return [], []
    bounds = np.array(spans).ravel()
    boxes, on_page = np.vstack([boxes, boxes[:1]]), np.append(on_page, False)  # a span may end behind the last one
    low = np.fmin.reduceat(boxes[:, :2], bounds)[::2]  # ignores NaN, which a hostile font can give as a place
    high = np.fmax.reduceat(boxes[:, 2:], bounds)[::2]
    corners = np.concatenate([low, high], axis=1).clip(0.0, 1.0).round(BOX_DIGITS)
    return corners.tolist(), np.logical_or.reduceat(on_page, bounds)[::2].tolist()


def _runs(pieces: list[str], hyphens: list[bool]) -> list[tuple[str, int, int]]:
    """(text, first and behind the last of the characters that place it) of each word."""
    runs: list[tuple[str, int, int]] = []
    text, start, second_line = "", 0, 0
    for index, piece in enumerate([*pieces, " "]):
        if index < len(hyphens) and hyphens[index]:
            following = pieces[index + 1] if index + 1 < len(pieces) else ""
            if text and following.strip():
                second_line = second_line or index
                text += "" if following.islower() else "-"  # "can-didate", but "Non-GAAP" and "COVID-19"
                continue
            piece = "-"
        if piece == " ":
            if text := _composed(text):
                runs.append((text, start, second_line or index))
            text, second_line = "", 0
        elif piece:
            if not text:
                start = index
            text += piece
    return runs


def _overprints(characters: PageCharacters) -> np.ndarray:
    """[n] whether a character is the one before it again, shifted a little to look bold. The letters of a ligature
    ("ff") share one box exactly and are no overprint."""
    found = np.zeros(len(characters.codes), dtype=bool)
    before, after = characters.boxes[:-1], characters.boxes[1:]
    shared = np.minimum(before[:, 2:], after[:, 2:]) - np.maximum(before[:, :2], after[:, :2])
    areas = (characters.boxes[:, 2:] - characters.boxes[:, :2]).prod(axis=1)
    overlaps = shared.clip(min=0).prod(axis=1) > OVERPRINT_OVERLAP * np.minimum(areas[:-1], areas[1:])
    found[1:] = (characters.codes[1:] == characters.codes[:-1]) & overlaps & (before != after).any(axis=1)
    return found


def _text_of(code: int) -> str | None:
    """What a code contributes to a word: its text, nothing, a space that ends it, or None where it is no Unicode."""
    if code > 0x10FFFF:
        return None
    character = chr(code)
    if character.isspace():
        return " "
    category = unicodedata.category(character)
    if category == "Cf":  # soft hyphens, direction marks, byte order marks
        return character if character in JOINERS else ""
    if category in ("Cc", "Cn", "Co") or code == 0xFFFD:
        return None
    if 0xFB00 <= code <= 0xFDFF or 0xFE70 <= code <= 0xFEFF:  # ligatures and other forms of letters, drawn as one glyph
        return unicodedata.normalize("NFKC", character)
    return character


def _composed(text: str) -> str:
    """Join surrogate pairs and combining accents; a lone surrogate is dropped."""
    if any("\ud800" <= character <= "\udfff" for character in text):
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "ignore")
    return unicodedata.normalize("NFC", text)


def _coverage(boxes: np.ndarray) -> float:
    """Share of the page's grid points that lie in one of the boxes [k, 4] (fractions); images may overlap or be
    strips of one scan, so areas cannot be added."""
    points = (np.arange(GRID) + 0.5) / GRID
    covered = np.zeros((GRID, GRID), dtype=bool)
    for left, top, right, bottom in boxes:
        covered |= np.outer((points >= top) & (points <= bottom), (points >= left) & (points <= right))
    return float(covered.mean())
