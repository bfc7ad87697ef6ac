"""What the proposer is told: how to mark evidence, and in which numbers (Sec. A.4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from conceptformer.questions import question_of

PROMPT_VERSION = "1"
"""Stands in each row of a box file; another wording is another version."""

SYSTEM = """\
You mark evidence on pages of documents. You see one page and a question that this page helps to answer. Find every \
part of the page that a careful reader has to look at to answer the question, and give each as a rectangle.

How to choose the rectangles:
- Take evidence as a whole, together with what is needed to understand it: the sentence or paragraph around a \
number, the heading or label that says what it is about.
- Keep units complete. Text is taken in whole lines. A chart or map comes with its title, axes, units, legend and \
notes as far as they are needed to read it.
- In a table, take the header and the labels along with all the rows or columns that the answer depends on, never a \
cell on its own.
- A caption, label or value that is printed for a picture belongs to the picture.
- Use several rectangles for evidence in several places. If pieces of evidence lie side by side or one below the other \
without anything between them, use one larger rectangle around all of them.
- When in doubt, choose the larger rectangle. Something that is cut off does more harm than some margin.
- If nothing on the page is evidence, give an empty list.

First think step by step: what is asked, which parts of the page bear on it, and where exactly their edges run. Then \
answer with one JSON object and nothing else:
{"think": "your reasoning", "boxes": [{"area": [x1, y1, x2, y2], "describe": "what is to be seen there"}]}

x1 and y1 are the left and top edge, x2 and y2 the right and bottom edge. "describe" is one short phrase that names \
the content of the rectangle."""

_NUMBERS = {
    "absolute": "All numbers are pixels of this image, which is {width} pixels wide and {height} pixels high; (0, 0) "
    "is its top left corner and ({width}, {height}) its bottom right corner.",
    "relative": "All numbers are fractions of the image's width and height between 0 and 1; (0, 0) is its top left "
    "corner and (1, 1) its bottom right corner.",
    "relative1000": "All numbers are whole numbers between 0 and 1000, in thousandths of the image's width and height; "
    "(0, 0) is its top left corner and (1000, 1000) its bottom right corner.",
}

QUESTION = """\
{numbers}

Question: {question}"""

REPLY_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "think": {"type": "string"},
        "boxes": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "area": {"type": "array", "items": {"type": "number"}},
                    "describe": {"type": "string"},
                },
                "required": ["area", "describe"],
                "additionalProperties": False,
            },
        },
    },
    "required": ["think", "boxes"],
    "additionalProperties": False,
}
"""For servers that can keep a model to a schema. Lengths of lists are left out: not all such servers know them."""


def make_messages(query: str, image_url: str, frame: str, input_size: tuple[int, int]) -> list[dict[str, Any]]:
    """The messages of a chat completion.

    Args:
        query: May begin with an instruction for retrievers, which is left out.
        image_url: The page, as a data URI.
        frame: Name of what the boxes are to be measured in, as in :func:`conceptformer.regions.frame_named`.
        input_size: (width, height) of that image in pixels.
    """
    width, height = input_size
    numbers = _NUMBERS[frame].format(width=width, height=height)
    text = QUESTION.format(numbers=numbers, question=question_of(query))
    return [
        {"role": "system", "content": SYSTEM},
        {
            "role": "user",
            "content": [{"type": "image_url", "image_url": {"url": image_url}}, {"type": "text", "text": text}],
        },
    ]
