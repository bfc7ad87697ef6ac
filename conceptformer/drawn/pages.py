"""One page: where its things stand, and its picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from random import Random

from PIL import Image

from conceptformer.drawn import drawing
from conceptformer.drawn.drawing import CELL
from conceptformer.drawn.papers import Paper
from conceptformer.drawn.things import Thing
from conceptformer.errors import DataError

_TRIES = 1000


@dataclass(frozen=True)
class Standing:
    """A thing at its place.

    Attributes:
        thing: Its index among all things.
        variant: Which picture of it.
        box: The pixels that it covers, (left, top, right, bottom); right and bottom are where the next pixel begins.
    """

    thing: int
    variant: int
    box: tuple[int, int, int, int]


@dataclass(frozen=True)
class Sheet:
    """What all pages of a drawing have in common.

    Attributes:
        things: All things that may stand on a page.
        size: (width, height) in pixels, multiples of ``CELL``.
        jitter: Largest distance, in pixels per axis, of a thing from the middle of its cells.
        variants: Pictures of each thing.
        seed: Of the pictures.
    """

    things: tuple[Thing, ...]
    size: tuple[int, int]
    jitter: int
    variants: int
    seed: int

    def place(self, chosen: Sequence[int], random: Random) -> tuple[Standing, ...]:
        """Give each thing random cells that no other has.

        Raises:
            DataError: They do not fit.
        """
        largest_first = sorted(chosen, key=lambda thing: -self.things[thing].columns * self.things[thing].rows)
        for _ in range(_TRIES):
            corners = self._corners(largest_first, random)
            if corners is not None:
                return tuple(
                    self._stand(thing, corner, random) for thing, corner in zip(largest_first, corners, strict=True)
                )
        raise DataError(
            f"things_per_page: {len(chosen)} things do not fit on a page of {self.size[0]} x {self.size[1]} pixels; "
            "ask for fewer things or a larger image"
        )

    def draw(self, standing: Sequence[Standing], paper: Paper) -> bytes:
        """The page as a PNG file's content; equal arguments give equal bytes."""
        page = paper.sheet(self.size)
        for one in standing:
            picture, mask = self._pictures[one.thing][one.variant]
            page.paste(picture, one.box[:2], mask)
        file = BytesIO()
        page.save(file, "PNG", compress_level=1)
        return file.getvalue()

    def _corners(self, chosen: Sequence[int], random: Random) -> list[tuple[int, int]] | None:
        """(column, row) of each thing's first cell, or None where a thing finds no place left."""
        taken = 0
        corners = []
        for thing in chosen:
            places = self._places[self.things[thing].columns, self.things[thing].rows]
            free = [place for place in places if not place[0] & taken]
            if not free:
                return None
            cells, corner = random.choice(free)
            taken |= cells
            corners.append(corner)
        return corners

    def _stand(self, thing: int, corner: tuple[int, int], random: Random) -> Standing:
        variant = random.randrange(self.variants)
        width, height = self._pictures[thing][variant][0].size
        columns, rows = self.things[thing].columns, self.things[thing].rows
        left = corner[0] * CELL + (columns * CELL - width) // 2 + random.randint(-self.jitter, self.jitter)
        top = corner[1] * CELL + (rows * CELL - height) // 2 + random.randint(-self.jitter, self.jitter)
        return Standing(thing, variant, (left, top, left + width, top + height))

    @cached_property
    def _places(self) -> dict[tuple[int, int], list[tuple[int, tuple[int, int]]]]:
        """By (columns, rows) of a thing: its cells as bits of a number, and the first of them, for every place."""
        across, down = self.size[0] // CELL, self.size[1] // CELL
        return {
            (columns, rows): [
                (sum(1 << (top + y) * across + left + x for y in range(rows) for x in range(columns)), (left, top))
                for top in range(down - rows + 1)
                for left in range(across - columns + 1)
            ]
            for columns, rows in {(thing.columns, thing.rows) for thing in self.things}
        }

    @cached_property
    def _pictures(self) -> list[list[tuple[Image.Image, Image.Image]]]:
        """By thing and variant: RGB and coverage, drawn once, since pasting is much faster than drawing."""
        return [
            [self._picture(thing, Random(f"{self.seed} {thing.name} {variant}")) for variant in range(self.variants)]
            for thing in self.things
        ]

    @staticmethod
    def _picture(thing: Thing, random: Random) -> tuple[Image.Image, Image.Image]:
        tile = drawing.cut_to_ink(thing.paint(random))
        return tile.convert("RGB"), tile.getchannel("A")
