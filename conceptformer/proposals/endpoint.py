"""Where the proposer is asked: an OpenAI-compatible server, its model, and the key that only the environment knows."""

from __future__ import annotations

import ipaddress
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from conceptformer.errors import ConceptFormerError

_NO_KEY = "none"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CALL = "/chat/completions"


@dataclass(frozen=True)
class Endpoint:
    """A model on a server, and how it is asked.

    Attributes:
        base_url: Address up to, not including, ``/chat/completions``.
        key_env: Environment variable that holds the key; None for a server that needs none.
        max_tokens: Longest reply, or None for the server's own limit.
        structured: Ask for structured output by JSON schema. Where the server refuses that, it is left out.
        timeout_seconds: Longest time for one call, from the connection to the last byte.
        max_reply_bytes: Longer replies are cut off and count as unreadable.
        extra_body: Further fields of the request, which some servers want.
    """

    base_url: str
    model: str
    key_env: str | None
    temperature: float
    max_tokens: int | None
    structured: bool
    timeout_seconds: float
    max_reply_bytes: int
    extra_body: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        self._check_address()
        if not isinstance(self.model, str) or not self.model.strip():
            raise ConceptFormerError("api.model: expected the name of a model on the server; write api.model=NAME")
        if self.key_env is not None and not (isinstance(self.key_env, str) and _VARIABLE.fullmatch(self.key_env)):
            # Not shown: it may be the key itself.
            raise ConceptFormerError(
                "api.key_env: expected the name of the environment variable that holds the key, such as "
                "OPENAI_API_KEY, or null"
            )
        if not isinstance(self.structured, bool):
            raise ConceptFormerError(f"api.structured: expected true or false, got {self.structured!r}")
        if self.extra_body is not None and not isinstance(self.extra_body, Mapping):
            raise ConceptFormerError(f"api.extra_body is {self.extra_body!r}; expected fields of a request, or null")
        for name in ("temperature", "timeout_seconds"):
            value = getattr(self, name)
            number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
            if not number or value < 0 or (name == "timeout_seconds" and value == 0):
                raise ConceptFormerError(f"api.{name} is {value!r}; expected a number above 0")
        for name in ("max_tokens", "max_reply_bytes"):
            value = getattr(self, name)
            whole = isinstance(value, int) and not isinstance(value, bool) and value >= 1
            if not whole and not (name == "max_tokens" and value is None):
                raise ConceptFormerError(f"api.{name} is {value!r}; expected a whole number of at least 1")

    def key(self) -> str:
        """The key, as the environment holds it.

        Raises:
            ConceptFormerError: It is not there, or cannot be a key. The message does not show it.
        """
        if self.key_env is None:
            return _NO_KEY
        # Files of secrets end with a newline, which no header may hold.
        key = os.environ.get(self.key_env, "").strip()
        if not key:
            raise ConceptFormerError(
                f"{self.key_env} is not set in the environment, or empty; set it to the key for {self.base_url}, name "
                "another variable by api.key_env=NAME, or write api.key_env=null for a server that needs no key"
            )
        if not (key.isascii() and key.isprintable()) or " " in key:
            raise ConceptFormerError(f"{self.key_env} holds signs that no key has (spaces, or no ASCII); correct it")
        return key

    def _check_address(self) -> None:
        wanted = "expected the address of an OpenAI-compatible server, such as http://localhost:8000/v1"
        if not isinstance(self.base_url, str) or not self.base_url:
            raise ConceptFormerError(f"api.base_url: {wanted}; write api.base_url=URL")
        try:
            parts = urlsplit(self.base_url)
            usable = parts.scheme in ("http", "https") and parts.port != 0 and _is_host(parts.hostname)
        except ValueError:
            raise ConceptFormerError(f"api.base_url cannot be read as an address; {wanted}") from None
        if parts.username is not None or parts.password is not None:
            # Not shown: addresses are printed.
            raise ConceptFormerError("api.base_url holds a user name or password; put the key into the environment")
        if parts.query or parts.fragment:
            # Nor here: it may hold a key.
            raise ConceptFormerError(
                "api.base_url holds a '?' or a '#'; expected an address without, and the key in the environment"
            )
        if not usable or re.search(r"[\s\\]", self.base_url):
            raise ConceptFormerError(f"api.base_url is {self.base_url!r}; {wanted}")
        if parts.path.rstrip("/").endswith(_CALL):
            address = self.base_url.rstrip("/").removesuffix(_CALL)
            raise ConceptFormerError(
                f"api.base_url is {self.base_url!r}; write api.base_url={address}, without {_CALL}"
            )


def _is_host(name: str | None) -> bool:
    """Whether a name can be one in the network: an address in numbers, or parts with dots between them."""
    if not name or "%" in name.partition(":")[0]:
        return False
    try:
        if ":" in name or re.fullmatch(r"\d+(\.\d+){3}", name):
            ipaddress.ip_address(name)
        else:
            name.encode("idna")
    except ValueError:
        return False
    return True
