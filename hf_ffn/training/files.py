"""Local files of rows: found by path or pattern, and opened as they are packed and encoded."""

import bz2
import codecs
import glob
import gzip
import hashlib
import lzma
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

FORMATS = {
    ".csv": "csv", ".tsv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json", ".parquet": "parquet"
}  # fmt: skip
PACKED: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}


@dataclass(frozen=True)
class TableFile:
    """A file of rows.

    Args:
        path: as it was named.
        ending: of its name, in small letters, without that of a packed file.
        open: opens it, unpacked.
        encoding: of its text; in UTF-8, a byte order mark may stand before it.
    """

    path: Path
    ending: str
    open: Callable[..., Any]
    encoding: str

    @classmethod
    def of(cls, path: Path, encoding: str | None) -> "TableFile":
        """By its name.

        Raises:
            ValueError: its ending is none that we know, or there is nothing in it.
        """
        endings = [ending.lower() for ending in path.suffixes]
        packed = bool(endings) and endings[-1] in PACKED
        ending = "".join(endings[-2:-1] if packed else endings[-1:])
        if ending not in FORMATS:
            raise ValueError(
                f"'{path}' ends in none of {', '.join(FORMATS)} (which may be packed: {', '.join(PACKED)}), so its "
                f"format is not known"
            )
        if path.stat().st_size == 0:
            raise ValueError(f"'{path}' is empty")
        # UTF-8 with a byte order mark is UTF-8 too.
        marked = encoding is None or encoding.lower() in ("utf-8", "utf8", "utf_8")
        return cls(path, ending, PACKED[endings[-1]] if packed else open, "utf-8-sig" if marked else str(encoding))

    @property
    def format(self) -> str:
        """`load_dataset`'s name of it."""
        return FORMATS[self.ending]

    def digest(self) -> str:
        """A hash of its bytes, as they are stored."""
        with self.path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def is_plain(self) -> bool:
        """Whether it is in UTF-8 already, with nothing before and around its text."""
        if self.format == "parquet":
            return True
        with self.path.open("rb") as file:
            marked = file.read(3) == codecs.BOM_UTF8
        return self.open is open and not marked and codecs.lookup(self.encoding).name in ("utf-8", "utf-8-sig")

    @contextmanager
    def text(self) -> Iterator[IO[str]]:
        """Its text, with line ends as they are.

        Raises:
            ValueError: it is damaged, or in another encoding.
        """
        try:
            with self.open(self.path, "rt", encoding=self.encoding, newline="") as file:
                yield file
        except LookupError as error:
            raise ValueError(f"--encoding {self.encoding}: {error}; there are utf-8, latin-1, utf-16…") from None
        except UnicodeError as error:
            raise ValueError(f"'{self.path}' is no text in {self.wrong_byte(error)}") from None
        except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
            raise ValueError(f"'{self.path}' cannot be read, or is damaged: {error}") from error

    def wrong_byte(self, error: UnicodeError) -> str:
        """Say where the text is not in its encoding. (Readers tell the place in their buffer only.)"""
        encoding = self.encoding.removesuffix("-sig")
        with self.open(self.path, "rb") as file:
            content = file.read()
        try:
            content.decode(encoding)
        except UnicodeDecodeError as found:
            line = content.count(b"\n", 0, found.start) + 1
            value = f"{content[found.start]:#04x}"
            place = f"offset {found.start}, in line {line}"
            return f"{encoding}: byte {value} at {place}; say what it is in with --encoding, for example latin-1"
        return f"{encoding}: {error}"


def find_files(given: Sequence[str]) -> list[Path]:
    """The files that are meant: each a path, or else a pattern, whose files come in sorted order.

    Raises:
        ValueError: a path that leads to no file, a pattern that nothing matches, or a file that is meant twice.
    """
    found: dict[Path, Path] = {}
    for name in given:
        for path in files_of(name):
            if (real := path.resolve()) in found:
                raise ValueError(f"'{path}' is given twice, also as '{found[real]}': its rows would count double")
            found[real] = path
    return list(found.values())


def files_of(name: str) -> list[Path]:
    """The file of a path, or the files of a pattern."""
    path = existing(name)
    if path.is_file():
        return [path]
    if path.is_dir():
        raise ValueError(f"'{name}' is a folder: name files, for example '{path / '*.csv'}'")
    # Also of a path with a pattern in it, the folders that exist are meant as they are called.
    folder = next(each for each in path.parents if each.is_dir())
    pattern = str(path.relative_to(folder))
    if not glob.has_magic(pattern) or path.is_symlink():
        raise ValueError(f"there is no file '{name}'")
    matched = [folder / each for each in sorted(glob.glob(pattern, root_dir=folder, recursive=True))]
    if not any(each.is_file() for each in matched):
        raise ValueError(f"there is no file '{name}', nor one that it matches as a pattern")
    return [each for each in matched if each.is_file()]


def existing(name: str) -> Path:
    """The path of a name, in which "~" is somebody's home unless there is something of just that name."""
    return Path(name) if os.path.lexists(name) else Path(name).expanduser()
