"""What encoders are given, checked before it reaches a library: questions, and the halves of pages."""

from __future__ import annotations

from PIL import Image

from visar.encoders.protocol import PageContent
from visar.errors import EmbeddingError
from visar.records import PageText


def valid_question(text: str) -> str:
    """The question as it is.

    Raises:
        EmbeddingError: It is blank, or holds halves of characters, as bytes of another encoding on a command line do.
    """
    if not text.strip():
        raise EmbeddingError("the question is empty: give at least one word")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise EmbeddingError(
            f"question: not valid text at character {error.start + 1} ({text[error.start]!a}): write it in UTF-8"
        ) from None
    return text


def text_of(page: PageContent, number: int) -> PageText:
    """The page's text.

    Raises:
        EmbeddingError: It was not read; the message calls the page ``number``, its place in the batch from 0.
    """
    if page.text is None:
        raise EmbeddingError(f"page {number} of the batch has no text: read the pages' text before this encoder")
    return page.text


def image_of(page: PageContent, number: int) -> Image.Image:
    """The page's image in RGB.

    Raises:
        EmbeddingError: It was not rendered; the message calls the page ``number``, its place in the batch from 0.
    """
    if page.image is None:
        raise EmbeddingError(f"page {number} of the batch has no image: render the pages before this encoder")
    return page.image.convert("RGB")
