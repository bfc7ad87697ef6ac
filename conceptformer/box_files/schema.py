"""Whether a row of a box file is what its JSON schema says.

The schema file is what counts; here is read as much of the language of JSON schemas as that file speaks.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from conceptformer.data.json_rows import shown
from conceptformer.proposals.box_file import SCHEMA

_TYPES = {
    "object": ("an object", lambda value: isinstance(value, dict)),
    "array": ("a list", lambda value: isinstance(value, list)),
    "string": ("a text", lambda value: isinstance(value, str)),
    "number": ("a finite number", lambda value: _is_number(value)),
    "integer": ("a whole number", lambda value: isinstance(value, int) and not isinstance(value, bool)),
}


def schema_faults(row: Mapping[str, object]) -> tuple[str, ...]:
    """One line for each place of a row that is not as its schema says; empty for a good row."""
    return tuple(_faults(row, _schema(), ""))


@cache
def _schema() -> Mapping[str, Any]:
    return json.loads(SCHEMA.read_text(encoding="utf-8"))


def _faults(value: Any, schema: Mapping[str, Any], place: str) -> Iterator[str]:
    if "type" in schema:
        wanted, fits = _TYPES[schema["type"]]
        if not fits(value):
            yield f"{place or 'the row'} is {shown(value)}; expected {wanted}"
            return
    expected = _expected(value, schema)
    if expected is not None:
        yield f"{place} is {shown(value)}; expected {expected}"
        return
    if isinstance(value, dict):
        yield from _object_faults(value, schema)
    elif isinstance(value, list) and "items" in schema:
        for number, item in enumerate(value):
            yield from _faults(item, schema["items"], f"{place}[{number}]")


def _expected(value: Any, schema: Mapping[str, Any]) -> str | None:
    """What a value of the right type should have been."""
    if "const" in schema and value != schema["const"]:
        return f"{schema['const']!r}"
    if "enum" in schema and value not in schema["enum"]:
        return " or ".join(map(repr, schema["enum"]))
    if "pattern" in schema and not re.search(schema["pattern"], value):
        return "a text that is not empty"
    if "minimum" in schema and value < schema["minimum"]:
        return f"at least {schema['minimum']}"
    if not schema.get("minItems", 0) <= (len(value) if isinstance(value, list) else 0) <= schema.get("maxItems", 1e9):
        return f"{schema['minItems']} numbers"
    return None


def _object_faults(value: Mapping[str, Any], schema: Mapping[str, Any]) -> Iterator[str]:
    properties = schema["properties"]
    for name in schema["required"]:
        if name not in value:
            yield f"there is no {name}; expected it in each row of {schema['title']}"
    for name, item in value.items():
        if name in properties:
            yield from _faults(item, properties[name], name)
        elif not schema["additionalProperties"]:
            yield f"unknown key {shown(name)}; expected {', '.join(properties)}"


def _is_number(value: object) -> bool:
    try:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # a whole number beyond float's range
        return False
