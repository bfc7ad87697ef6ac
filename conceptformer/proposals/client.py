"""Calls of the proposer: sent again where that helps, within the budget, and never with the key in what is said."""

from __future__ import annotations

import asyncio
import json
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from conceptformer.data.one_line import one_line
from conceptformer.errors import ConceptFormerError, MissingExtraError
from conceptformer.proposals.answers import Answer, read_answer
from conceptformer.proposals.budget import Budget, BudgetSpentError, Usage
from conceptformer.proposals.endpoint import Endpoint
from conceptformer.proposals.failed_requests import (
    NOT_IMPLEMENTED,
    FailedRequestError,
    names_model,
    no_connection,
    of_transport,
)
from conceptformer.proposals.first_call import FirstCall
from conceptformer.proposals.prompt import REPLY_SCHEMA
from conceptformer.proposals.retries import RetryPolicy, retry_after_seconds

if TYPE_CHECKING:
    from openai import AsyncOpenAI

Messages: TypeAlias = Sequence[Mapping[str, Any]]

_TOLD = 200
# Shorter ones are words that stand for no key at all, as local servers like them, and may stand in any text.
_SHORTEST_KEY = 12
_KEY_REFUSED, _NO_CREDIT, _NOT_FOUND = {401, 403}, 402, {404, 405}
# With one of these, servers refuse fields of a request that they do not know.
_MAY_MEAN_STRUCTURE = {400, 404, 422, NOT_IMPLEMENTED}
_USED_UP = "insufficient_quota"
_CONNECTION_SECONDS = 15.0


class CallError(Exception):
    """A call brought no answer, for reasons that may be this pair's alone; the message says why, in one line."""


class ProposalWarning(UserWarning):
    """Something about the proposals is not as it was asked for, or doubtful; the message says what."""


class Client:
    """Asks the proposer. Used as an asynchronous context; many calls may be under way at once."""

    def __init__(
        self, endpoint: Endpoint, retries: RetryPolicy, budget: Budget, usage: Usage, *, concurrency: int
    ) -> None:
        """
        Args:
            usage: Counts what is used.
            concurrency: Calls under way at once; those that wait to be tried again count among them.

        Raises:
            ConceptFormerError: The environment holds no key, or something with which no connection can be set up.
            MissingExtraError: The package openai is not installed.
        """
        try:
            import openai
        except ImportError:
            raise MissingExtraError("openai", "api", "asking a proposer") from None
        self._openai = openai
        self._endpoint, self._retries, self._budget, self._usage = endpoint, retries, budget, usage
        self._key = endpoint.key()
        self._structured = endpoint.structured
        self._structure_was_taken = False
        self._slots, self._first = asyncio.Semaphore(concurrency), FirstCall()
        self._reached = False
        self._hopeless: ConceptFormerError | None = None
        self._resume_at = 0.0
        self._trouble = ""
        self._sdk = self._connected()

    def _connected(self) -> AsyncOpenAI:
        """The SDK, which reads addresses of proxies and files of certificates in the environment."""
        seconds = self._endpoint.timeout_seconds
        try:
            # Tries are counted and waited for here, since they touch the budget and all other calls.
            return self._openai.AsyncOpenAI(
                base_url=self._endpoint.base_url,
                api_key=self._key,
                max_retries=0,
                timeout=self._openai.Timeout(seconds, connect=min(seconds, _CONNECTION_SECONDS)),
            )
        except (ImportError, OSError, ValueError, *of_transport("InvalidURL")) as error:
            raise ConceptFormerError(
                f"{self._endpoint.base_url}: no connection can be set up ({self._told(str(error))}); check "
                "api.base_url, and the environment's settings of proxies and certificates, such as ALL_PROXY and "
                "SSL_CERT_FILE"
            ) from error

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_reason: object) -> None:
        await self._sdk.close()

    async def ask(self, messages: Messages) -> Answer:
        """One answer, whatever its content.

        Raises:
            CallError: It did not come, or the server refused this request.
            BudgetSpentError: No further call may be made.
            ConceptFormerError: No other call can succeed either: the key or the model is wrong, the server is down or
                asks for a long pause.
        """
        async with self._slots:
            return await self._ask(messages)

    async def _ask(self, messages: Messages) -> Answer:
        attempt, attempts = 0, self._retries.attempts
        while True:
            attempt += 1
            await self._end_of_pause()
            try:
                async with self._first.passed():
                    return await self._one_answer(messages)
            except FailedRequestError as failure:
                self._hopeless = self._hopeless or self._reason_to_stop(failure, last=attempt == attempts)
                if self._hopeless is not None:
                    raise self._hopeless from failure
                if not failure.passing or attempt == attempts:
                    times = f" ({attempts} {'try' if attempts == 1 else 'tries'})" if failure.passing else ""
                    raise CallError(f"{failure}{times}") from failure
                seconds = self._retries.wait_seconds(attempt, failure.retry_after)
                if failure.retry_after is not None:
                    # The server means all calls.
                    self._resume_at = max(self._resume_at, _now() + seconds)
            await asyncio.sleep(seconds)
            self._usage.repeated += 1

    async def _end_of_pause(self) -> None:
        while (seconds := self._resume_at - _now()) > 0:
            await asyncio.sleep(seconds)

    async def _one_answer(self, messages: Messages) -> Answer:
        """Ask for structured output, unless the server is known to refuse that, and without it if it does."""
        structured = self._structured
        try:
            answer = await self._request(messages, structured)
        except FailedRequestError as failure:
            about_structure = failure.status in _MAY_MEAN_STRUCTURE and not names_model(failure, self._endpoint.model)
            if not structured or self._structure_was_taken or not about_structure:
                raise
            try:
                answer = await self._request(messages, False)
            except BudgetSpentError:
                raise failure from None  # it says more, and may hold for all calls
            if self._structured:
                self._structured = False
                message = f"the server refuses structured output ({failure}); replies are read as texts from now on"
                warnings.warn(message, ProposalWarning, stacklevel=2)
            return answer
        self._structure_was_taken = self._structure_was_taken or structured
        return answer

    async def _request(self, messages: Messages, structured: bool) -> Answer:
        if self._hopeless is not None:  # another call has found out in the meantime
            raise self._hopeless
        try:
            self._budget.take_call(self._usage)
        except BudgetSpentError as spent:
            raise BudgetSpentError(f"{spent}{self._trouble}") from None
        try:
            answer = await self._sent(messages, structured)
        except FailedRequestError as failure:
            self._trouble = f" (the last call failed: {failure})"
            raise
        self._trouble = ""
        return answer

    async def _sent(self, messages: Messages, structured: bool) -> Answer:
        endpoint = self._endpoint
        options: dict[str, Any] = {"temperature": endpoint.temperature, **(endpoint.extra_body or {})}
        if endpoint.max_tokens is not None:
            options["max_tokens"] = endpoint.max_tokens
        if structured:
            schema = {"name": "evidence", "strict": True, "schema": REPLY_SCHEMA}
            options["response_format"] = {"type": "json_schema", "json_schema": schema}
        try:
            body = await asyncio.wait_for(self._receive(messages, options), endpoint.timeout_seconds)
        except self._openai.APIStatusError as error:
            self._reached = True
            raise FailedRequestError(
                f"the server answers {error.status_code}: {self._told(error.body)}",
                status=error.status_code,
                code=error.code,
                retry_after=retry_after_seconds(error.response.headers),
            ) from error
        except (asyncio.TimeoutError, self._openai.APITimeoutError) as error:
            unreachable = no_connection(error)
            told = "no connection" if unreachable else f"no answer within {endpoint.timeout_seconds:g} seconds"
            raise FailedRequestError(told, unreachable=unreachable) from error
        except (self._openai.APIConnectionError, *of_transport("HTTPError")) as error:
            told = self._told(str(error.__cause__ or error) or type(error).__name__)
            raise FailedRequestError(f"the connection failed: {told}", unreachable=no_connection(error)) from error
        self._reached = True
        answer = read_answer(body, most_bytes=endpoint.max_reply_bytes, hide=self._hide)
        self._budget.record(self._usage, answer.tokens)
        return answer

    async def _receive(self, messages: Messages, options: Mapping[str, Any]) -> bytes:
        """The body of an answer, and no more of it than shows that it is too long."""
        most = self._endpoint.max_reply_bytes + 1
        create = self._sdk.chat.completions.with_streaming_response.create
        parts, length = [], 0
        # As a further field the SDK takes the messages as they are; it would walk through them else, which costs
        # more than the whole rest of a call.
        body = {**options, "messages": messages}
        async with create(model=self._endpoint.model, messages=[], extra_body=body) as response:
            async for part in response.iter_bytes():
                parts.append(part)
                length += len(part)
                if length >= most:
                    break
        return b"".join(parts)[:most]

    def _reason_to_stop(self, failure: FailedRequestError, last: bool) -> ConceptFormerError | None:
        """Why no other request can succeed either; None where one may."""
        where, told, pause = self._endpoint.base_url, f"({failure})", failure.retry_after
        if failure.unreachable and (last or not self._reached):
            reason = f"cannot be reached {told}; check api.base_url and whether the server is up"
        elif failure.status in _KEY_REFUSED:
            key = self._endpoint.key_env or "api.key_env"
            reason = f"the key was refused {told}; correct what {key} holds, then run the same command again"
        elif failure.status == _NO_CREDIT or failure.code == _USED_UP:
            reason = f"the account has no credit left {told}; run the same command later"
        elif failure.status in _NOT_FOUND:
            model = self._endpoint.model
            reason = (
                f"no model {model!r}, or no such address {told}; check api.model, and api.base_url, which usually ends "
                "in /v1"
            )
        elif failure.passing and pause is not None and pause > self._retries.longest_pause_seconds:
            reason = f"asks for a pause of {pause:,.0f} s {told}; run the same command later"
        else:
            return None
        return ConceptFormerError(f"{where}: {reason}")

    def _told(self, value: object) -> str:
        """What a server says, for a message."""
        if isinstance(value, dict):
            told = value.get("message") or value.get("detail")
            value = told if isinstance(told, str) else json.dumps(value, ensure_ascii=False, default=str)
        return one_line(self._hide(str(value or "nothing more")), most=_TOLD)

    def _hide(self, text: str) -> str:
        return text.replace(self._key, "[key]") if len(self._key) >= _SHORTEST_KEY else text


def _now() -> float:
    return asyncio.get_running_loop().time()
