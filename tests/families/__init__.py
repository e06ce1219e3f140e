"""The one test that every family passes, and its rows."""

from .rows import Row
from .text_rows import TEXT_ROWS
from .vision_rows import VISION_ROWS

ROWS: list[Row] = [*TEXT_ROWS, *VISION_ROWS]
