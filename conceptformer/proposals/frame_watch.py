"""Doubts whether a model states its boxes in the frame that it is said to use.

Only to warn: the frame is always the one that was stated. A single reply that cannot stand in it at all is an error of
that reply, see :mod:`conceptformer.regions`; here it is about numbers that fit badly over many replies.
"""

from __future__ import annotations

from collections.abc import Sequence

_ENOUGH = 30
_OVER, _MANY, _FEW = 1.05, 0.1, 0.01
# Where most replies name places beyond the page, a handful of them will do.
_A_HANDFUL, _MOST = 4, 0.5
# Evidence at the right or lower edge is common: among many pages, some box reaches nearly to the end of its frame.
_NEVER_BEYOND, _NEARLY, _HARDLY_OVER = 0.85, 0.9, 1.02
_ABSURD = 1e9  # and numbers that are none or not finite
_MEANING = {"absolute": "pixels of the image that is sent", "relative1000": "0 to 1000"}


class FrameWatch:
    """Looks at the boxes of all replies of a run."""

    def __init__(self, stated: str) -> None:
        """
        Args:
            stated: Name of the frame that the boxes are read in.
        """
        self._stated = stated
        # Numbers that are not "relative" do not pass for it in a single reply, nor the other way round.
        self._others = [name for name in _MEANING if name != stated] if stated in _MEANING else []
        self._reach: dict[str, list[float]] = {name: [] for name in (stated, *self._others)}

    def see(self, areas: Sequence[object], input_size: tuple[int, int]) -> None:
        """Take note of a reply's boxes, usable or not.

        Args:
            input_size: (width, height) of the image that was sent.
        """
        ends = [area[2:] for area in areas if _is_box(area)]
        if not ends or not self._others:
            return
        right, bottom = max(end[0] for end in ends), max(end[1] for end in ends)
        for name, reach in self._reach.items():
            width, height = input_size if name == "absolute" else (1000, 1000)
            reach.append(max(right / width, bottom / height))

    def doubt(self) -> str | None:
        """Why another frame is likelier, in one line; None where it is not, or as long as little was seen."""
        stated = self._reach[self._stated]
        if len(stated) < _A_HANDFUL:
            return None
        enough = len(stated) >= _ENOUGH
        for name in self._others:
            other = self._reach[name]
            if _share_over(stated) >= (_MANY if enough else _MOST) and _share_over(other) <= _FEW:
                found = f"{_share_over(stated):.0%} of the replies name places beyond the page in that frame"
            elif enough and max(stated) < _NEVER_BEYOND and _NEARLY <= max(other) <= _HARDLY_OVER:
                found = f"no box of {len(stated):,} replies ends beyond {max(stated):.0%} of the page in that frame"
            else:
                continue
            return (
                f"the boxes may be in another frame than frame={self._stated}: {found}, and all fit frame={name} "
                f"({_MEANING[name]}); look at some of them"
            )
        return None


def _share_over(reach: Sequence[float]) -> float:
    return sum(end > _OVER for end in reach) / len(reach)


def _is_box(area: object) -> bool:
    return (
        isinstance(area, list)
        and len(area) == 4
        and all(isinstance(number, (int, float)) and abs(number) < _ABSURD for number in area)
    )
