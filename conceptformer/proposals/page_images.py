"""Page images as a proposer is sent them: of a stated size, in a data URI."""

from __future__ import annotations

import asyncio
import base64
import io
import math
from collections import OrderedDict
from dataclasses import dataclass

from PIL import Image

from conceptformer.data.images import open_image
from conceptformer.errors import ConceptFormerError, DataError
from conceptformer.records import ImageSource

_KEPT = 32
_FORMATS = {"jpeg": {"quality": 90}, "png": {"compress_level": 1}}


@dataclass(frozen=True)
class SentImage:
    """A page as it is sent.

    Attributes:
        url: Data URI.
        image_size: (width, height) of the page's own image in pixels, upright.
        input_size: (width, height) of the image in ``url``.
    """

    url: str
    image_size: tuple[int, int]
    input_size: tuple[int, int]


@dataclass(frozen=True)
class SentForm:
    """How pages are sent.

    Attributes:
        max_pixels: Larger pages are scaled down to this many pixels; smaller ones are not enlarged.
        side_multiple: Width and height are multiples of it. Models that state boxes in pixels do so of an image which
            they resize to such sides themselves; sent in that size, it stays as it is.
        format: "jpeg", or "png" without loss and several times as large.
    """

    max_pixels: int
    side_multiple: int
    format: str

    def __post_init__(self) -> None:
        if self.format not in _FORMATS:
            raise ConceptFormerError(f"image.format is {self.format!r}; expected jpeg or png")
        for name, least in (("side_multiple", 1), ("max_pixels", self.side_multiple**2)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ConceptFormerError(f"image.{name} is {value!r}; expected a whole number of at least {least}")

    def input_size(self, image_size: tuple[int, int]) -> tuple[int, int]:
        """(width, height) in which a page of ``image_size`` is sent."""
        scale = min(1.0, math.sqrt(self.max_pixels / (image_size[0] * image_size[1])))
        unit = self.side_multiple
        width, height = (max(1, round(side * scale / unit)) * unit for side in image_size)
        if width * height > self.max_pixels:
            # Rounded up, or a side was too short for the multiple: the longer one gives way.
            if width >= height:
                width = self.max_pixels // height // unit * unit
            else:
                height = self.max_pixels // width // unit * unit
        return width, height

    def encode(self, source: ImageSource) -> SentImage:
        """Decode, resize and encode a page.

        Raises:
            DataError: As :func:`~conceptformer.data.images.open_image`; or the format cannot hold an image so shaped.
        """
        image = open_image(source)
        size = self.input_size(image.size)
        sent = image if size == image.size else image.resize(size, Image.Resampling.BICUBIC, reducing_gap=3.0)
        content = io.BytesIO()
        try:
            sent.save(content, self.format, **_FORMATS[self.format])
        except (OSError, ValueError) as error:  # JPEG ends at 65,535 pixels a side
            raise DataError(
                f"{source}: {size[0]} x {size[1]} pixels cannot be sent as {self.format} ({error})"
            ) from error
        data = base64.b64encode(content.getvalue()).decode()
        return SentImage(f"data:image/{self.format};base64,{data}", image.size, size)


class SentImages:
    """Encodes pages in threads, beside the calls, and keeps the latest: several queries often share a page."""

    def __init__(self, form: SentForm) -> None:
        self._form = form
        self._tasks: OrderedDict[ImageSource, asyncio.Task[SentImage]] = OrderedDict()

    async def get(self, source: ImageSource) -> SentImage:
        """The page as it is sent.

        Raises:
            DataError: As :meth:`SentForm.encode`.
        """
        if source not in self._tasks:
            self._tasks[source] = asyncio.create_task(asyncio.to_thread(self._form.encode, source))
            if len(self._tasks) > _KEPT:
                self._tasks.popitem(last=False)
        self._tasks.move_to_end(source)
        return await self._tasks[source]
