r"""The question within a query of the benchmarks.

Their queries are written for retrievers that follow instructions: ``Instruct: Given a question, ...``, a line end, and
``Query: `` before the question. In three of the six files the line end is the two signs ``\`` and ``n``.
"""

from __future__ import annotations

import re

_INSTRUCTION = re.compile(r"Instruct: .*?(?:\n|\\n)Query: ", flags=re.DOTALL)


def question_of(query: str) -> str:
    """The query without the instruction that it begins with, if it does and anything stands behind it."""
    instruction = _INSTRUCTION.match(query)
    return query[instruction.end() :] if instruction and query[instruction.end() :].strip() else query
