"""What a run of proposals has used up, what it costs, and how much it may use."""

from __future__ import annotations

import math
from dataclasses import dataclass

from conceptformer.errors import ConceptFormerError
from visar.report.wording import counted


class BudgetSpentError(Exception):
    """No further call may be made; the message says which budget is spent."""


@dataclass
class Usage:
    """What the calls of a run have used so far.

    Attributes:
        calls: Requests sent, repeated ones too.
        repeated: Of these, requests sent again because the one before failed.
        input_tokens, output_tokens: As the replies report them.
        unreported: Replies that do not report their tokens.
    """

    calls: int = 0
    repeated: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    unreported: int = 0

    @property
    def tokens(self) -> int:
        """All tokens that were reported."""
        return self.input_tokens + self.output_tokens


@dataclass(frozen=True)
class Price:
    """Prices of a million tokens, in any currency; None where they are not known."""

    input: float | None = None
    output: float | None = None

    def __post_init__(self) -> None:
        for name in ("input", "output"):
            value = getattr(self, name)
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if value is not None and not (number and math.isfinite(value) and value >= 0):
                raise ConceptFormerError(f"price.{name} is {value!r}; expected the price of a million tokens, or null")
        if (self.input is None) != (self.output is None):
            raise ConceptFormerError("price: expected both price.input and price.output, or neither")

    def cost(self, usage: Usage) -> float | None:
        """What the reported tokens cost; None where the prices are not known."""
        if self.input is None or self.output is None:
            return None
        return (usage.input_tokens * self.input + usage.output_tokens * self.output) / 1_000_000


@dataclass(frozen=True)
class Budget:
    """What a run may use at most.

    Tokens are known when a reply has come: the calls that are under way when the last one is used may go beyond.

    Attributes:
        calls: Requests, or None for any number.
        tokens: Tokens of input and output, or None for any number.
    """

    calls: int | None = None
    tokens: int | None = None

    def __post_init__(self) -> None:
        for name in ("calls", "tokens"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise ConceptFormerError(f"budget.{name} is {value!r}; expected a whole number of at least 1, or null")

    def take_call(self, usage: Usage) -> None:
        """Count a call that is about to be made.

        Raises:
            BudgetSpentError: It may not be made.
        """
        if self.calls is not None and usage.calls >= self.calls:
            raise BudgetSpentError(f"the budget of {counted(self.calls, 'call')} is spent")
        if self.tokens is not None and usage.tokens >= self.tokens:
            raise BudgetSpentError(f"the budget of {counted(self.tokens, 'token')} is spent")
        usage.calls += 1

    def record(self, usage: Usage, tokens: tuple[int, int] | None) -> None:
        """Count the tokens of a reply.

        Args:
            tokens: (input, output), or None where the reply does not report them.

        Raises:
            ConceptFormerError: They are not reported, and there is a budget of tokens, which thus cannot be kept.
        """
        if tokens is not None:
            usage.input_tokens += tokens[0]
            usage.output_tokens += tokens[1]
            return
        usage.unreported += 1
        if self.tokens is not None:
            raise ConceptFormerError(
                "budget.tokens cannot be kept: the server does not report the tokens of its replies; "
                "state budget.calls instead"
            )
