"""The files that were named, all of them, and none else."""

import bz2
import gzip
import lzma
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pytest
from transformers import PreTrainedTokenizerBase

from hf_ffn.training.arguments import DataArguments, parse
from hf_ffn.training.data import TaskData, load_text_data
from hf_ffn.training.files import find_files
from hf_ffn.training.sources import load_splits
from hf_ffn.training.texts import Tokenization

pytestmark = pytest.mark.usefixtures("own_cache")

CSV = "text,label\n" + "good film,a\nbad film,b\n" * 10
# A neighbour's rows, which are never to be read.
OTHER = "text,label\n" + "na,x\nna,y\n" * 10


def texts_of(path: str | Path | list[str], **args: Any) -> list[str]:
    """The texts that are read, in their order."""
    given = path if isinstance(path, list) else [str(path)]
    return load_splits(DataArguments(train_file=given, **args))[0].rows["text"][:]


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize(
    ("name", "neighbour"),
    [
        ("reviews[2].csv", "reviews2.csv"),
        ("what?now.csv", "what-now.csv"),
        ("all*.csv", "all of it.csv"),
        ("a::b.csv", "b.csv"),
        ("[!x] ünïcode & $HOME.csv", "y ünïcode & $HOME.csv"),
        ("data [2]/.hidden/__x__/x.csv", "data 2/.hidden/__x__/x.csv"),
        ("~/x.csv", "x.csv"),
    ],
)
def test_a_path_is_no_pattern(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, neighbour: str, streaming: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for path, content in ((Path(name), CSV), (Path(neighbour), OTHER)):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    given = str(tmp_path / name)
    splits = load_splits(DataArguments(train_file=[given], validation_file=[name], streaming=streaming))
    for split in splits:
        assert split is not None
        assert {row["text"] for row in split.rows} == {"good film", "bad film"}


def test_what_does_not_exist_may_be_a_pattern_or_lie_at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path.parent / f"{tmp_path.name} cache")
    (tmp_path / "deep" / "er").mkdir(parents=True)
    for name in ("b.csv", "a.csv", "deep/er/c.csv", "deep/d.txt"):
        (tmp_path / name).write_text(f"text,label\n{name},1\n")
    assert texts_of(f"{tmp_path}/*.csv") == ["a.csv", "b.csv"]
    assert texts_of(f"{tmp_path}/**/*.csv") == ["a.csv", "b.csv", "deep/er/c.csv"]
    assert texts_of("~/[b].csv") == ["b.csv"]
    assert texts_of([f"{tmp_path}/b.csv", "~/a*.csv"]) == ["b.csv", "a.csv"]
    (tmp_path / "run.yaml").write_text(f"output_dir: out\ntrain_file: ['{tmp_path}/b.csv', '{tmp_path}/a.csv']\n")
    data = parse([str(tmp_path / "run.yaml")])[1]
    assert load_splits(data)[0].rows["text"][:] == ["b.csv", "a.csv"]
    assert parse(["--output_dir", "o", "--train_file", "a.csv", "b.csv"])[1].train_file == ["a.csv", "b.csv"]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["no*.csv"], r"there is no file 'no\*.csv', nor one that it matches as a pattern"),
        (["a.csv", "b.csv"], "there is no file 'b.csv'"),
        (["a.csv", "./a.csv"], "'a.csv' is given twice, also as 'a.csv': its rows would count double"),
        (["a.csv", "link.csv"], "'link.csv' is given twice, also as 'a.csv'"),
        (["*.csv", "a.csv"], "'a.csv' is given twice"),
        (["folder"], r"'folder' is a folder: name files, for example 'folder/\*.csv'"),
        (["nowhere.csv"], "there is no file 'nowhere.csv'"),
        (["a.csv", "a.tsv"], "'a.csv' and 'a.tsv' are of two formats: give files of one"),
        (["a.csv.zst"], "'a.csv.zst' ends in none of .csv, .*, so its format is not known"),
        (["gz"], "'gz' ends in none of .csv"),
        (["empty.csv"], "'empty.csv' is empty"),
    ],
)
def test_files_that_cannot_be_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: list[str], says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    for name in ("a.csv", "a.tsv", "a.csv.zst", "gz"):
        Path(name).write_text(CSV)
    Path("empty.csv").touch()
    if "link.csv" in given:
        os.symlink("a.csv", "link.csv")
    os.symlink("gone.csv", "nowhere.csv")
    with pytest.raises(ValueError, match=says):
        load_splits(DataArguments(train_file=given))


def test_folders_that_exist_are_no_part_of_a_pattern(tmp_path: Path) -> None:
    for name in ("d [2]/a.csv", "d [2]/b[1].csv", "d 2/c.csv", "d [2]/e/f.csv", "d [2]/e*/g.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    for given, names in {
        "d [2]/*.csv": ["a.csv", "b[1].csv"],
        "d [2]/e*/*.csv": ["g.csv"],
        "d*/c.csv": ["c.csv"],
    }.items():
        assert [path.name for path in find_files([str(tmp_path / given)])] == names
    with pytest.raises(ValueError, match=r"there is no file '.*none.csv'$"):
        find_files([str(tmp_path / "d [2]" / "none.csv")])


def test_files_are_found_in_the_order_that_they_are_named_in(tmp_path: Path) -> None:
    for name in ("10.csv", "2.csv", "1.csv"):
        (tmp_path / name).touch()
    assert [path.name for path in find_files([f"{tmp_path}/[!1]*.csv", f"{tmp_path}/1*.csv"])] == [
        "2.csv",
        "1.csv",
        "10.csv",
    ]


@pytest.mark.parametrize("other", ["validation_file", "validation_dir"])
def test_a_file_that_would_not_be_read_is_refused(other: str) -> None:
    with pytest.raises(ValueError, match=f"--{other} goes with --train_.*: beside --dataset_name it would not be"):
        load_splits(DataArguments(dataset_name="digits", **{other: ["x"]}))


@pytest.mark.parametrize("flag", ["delimiter", "quoting", "encoding", "field"])
def test_a_flag_that_would_mean_nothing_is_refused(flag: str) -> None:
    with pytest.raises(ValueError, match=f"--{flag} says how --train_file is read: beside --dataset_name it would"):
        load_splits(DataArguments(dataset_name="digits", **{flag: ";"}))


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize(
    ("name", "pack", "content"),
    [
        ("train.CSV", bytes, CSV),
        ("train.csv.gz", gzip.compress, CSV),
        ("Train.Csv.GZ", gzip.compress, CSV),
        ("train.tsv.bz2", bz2.compress, CSV.replace(",", "\t")),
        ("train.jsonl.xz", lzma.compress, '{"text": "good film", "label": "a"}\n{"text": "bad film", "label": "b"}\n'),
        ("train.json.gz", gzip.compress, '[{"text": "good film", "label": "a"}, {"text": "bad film", "label": "b"}]'),
        ("v1.2.train.NDJSON", bytes, '{"text": "good film", "label": "a"}\n{"text": "bad film", "label": "b"}\n'),
    ],
)
def test_endings_of_any_case_and_packed_files(
    tmp_path: Path, name: str, pack: Callable[[bytes], bytes], content: str, streaming: bool
) -> None:
    (tmp_path / name).write_bytes(pack(content.encode()))
    args = DataArguments(train_file=str(tmp_path / name), validation_file=str(tmp_path / name), streaming=streaming)
    train, _ = load_splits(args)
    rows = list(train.rows)
    assert [(row["text"], row["label"]) for row in rows[:2]] == [("good film", "a"), ("bad film", "b")]
    assert [row["__id__"] for row in rows] == list(range(len(rows)))


def test_a_parquet_file_of_another_case_is_read(tmp_path: Path) -> None:
    datasets.Dataset.from_list([{"text": "good film"}, {"text": "bad film"}]).to_parquet(tmp_path / "T[1].PARQUET")
    assert texts_of(tmp_path / "T[1].PARQUET")[:2] == ["good film", "bad film"]


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_file_is_never_taken_for_what_it_was(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    path = tmp_path / ("train.csv.gz" if pack is gzip.compress else "train.csv")
    for texts in ("good,bad", "bads,bad", "good,bad"):
        path.write_bytes(pack("\n".join(["text,label", *(f"{text},1" for text in texts.split(","))]).encode()))
        os.utime(path, (1e9, 1e9))  # as copies that keep dates have it
        assert texts_of(path) == texts.split(",")
    other = tmp_path / "other.csv"
    (tmp_path / "one.csv").write_text("text,label\ngood,1\n")
    assert texts_of(tmp_path / "one.csv") == ["good"]
    (tmp_path / "one.csv").write_text("text,label\nelse,1\n")
    other.write_text("text,label\ngood,1\n")
    assert texts_of(other) == ["good"]


def test_tokenized_texts_of_a_packed_file_are_found_again(
    tmp_path: Path, tokenizer: PreTrainedTokenizerBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(CSV.encode()))
    args = DataArguments(train_file=str(tmp_path / "t.csv.gz"))
    first = load_text_data(args, tokenizer, seed=1)
    monkeypatch.setattr(Tokenization, "__call__", None)  # computing anything again would fail
    assert load_text_data(args, tokenizer, seed=2).fingerprint == first.fingerprint


@pytest.mark.parametrize("streaming", [False, True])
def test_a_fingerprint_follows_from_the_content_wherever_it_lies(
    tmp_path: Path, tokenizer: PreTrainedTokenizerBase, streaming: bool
) -> None:
    def fingerprint(name: str, content: str) -> Any:
        (tmp_path / name).write_text(content)
        path = str(tmp_path / name)
        args = DataArguments(train_file=path, validation_file=path, streaming=streaming)
        return load_text_data(args, tokenizer, seed=1).fingerprint

    first = fingerprint("one.csv", CSV)
    assert fingerprint("other [1].csv", CSV) == first
    assert fingerprint("one.csv", CSV.replace("good film,a", "film good,a")) != first


@pytest.mark.parametrize(
    ("encoding", "mark"),
    [("utf-8", b"\xef\xbb\xbf"), ("UTF-8", b"\xef\xbb\xbf"), ("latin-1", b""), ("utf-16", b"")],
)
@pytest.mark.parametrize("name", ["train.csv", "train.json", "train.jsonl"])
def test_encodings_and_byte_order_marks(tmp_path: Path, encoding: str, mark: bytes, name: str) -> None:
    content = {
        "train.csv": "text,label\r\nschön,a\r\nbad,ü\r\n",
        "train.jsonl": '{"text": "schön", "label": "a"}\n{"text": "bad", "label": "ü"}\n',
        "train.json": '[\n{"text": "schön", "label": "a"},\n{"text": "bad", "label": "ü"}]',
    }[name]
    (tmp_path / name).write_bytes(mark + content.encode(encoding))
    given = {} if encoding == "utf-8" else {"encoding": encoding}
    rows = load_splits(DataArguments(train_file=str(tmp_path / name), **given))[0].rows
    assert (rows["text"][:], rows["label"][:]) == (["schön", "bad"], ["a", "ü"])


@pytest.mark.parametrize(
    ("name", "content", "args", "says"),
    [
        ("t.csv", CSV.encode() + "schön,a\n".encode("latin-1"), {},
         r"t.csv' is no text in utf-8: byte 0xf6 at offset 244, in line 22; say what it is in with --encoding"),
        ("t.jsonl", '{"text": "schön"}'.encode("latin-1"), {}, "utf-8: byte 0xf6 at offset 13, in line 1"),
        ("t.csv.gz", gzip.compress(CSV.encode("utf-16"), mtime=0), {}, "utf-8: byte 0xff at offset 0, in line 1"),
        ("t.csv", b"text,label\n\x81,a\n", {"encoding": "cp1252"}, "cp1252: byte 0x81 at offset 11, in line 2"),
        ("t.csv", CSV.encode(), {"encoding": "latin-one"}, "--encoding latin-one: unknown encoding"),
        ("t.csv", CSV.encode(), {"encoding": "base64"}, "--encoding base64: .*not a text encoding"),
        ("t.csv.gz", CSV.encode(), {}, "t.csv.gz' cannot be read, or is damaged: Not a gzipped file"),
        ("t.csv.gz", gzip.compress(CSV.encode(), mtime=0)[:-9], {}, "cannot be read, or is damaged"),
        ("t.csv.xz", lzma.compress(CSV.encode())[:-9], {}, "cannot be read, or is damaged"),
        ("t.json.bz2", b"{}", {}, "cannot be read, or is damaged"),
        ("t.csv", CSV.encode(), {"field": "data"}, "--field is for files of json, which '.*t.csv' is not"),
        ("t.jsonl", b"{}", {"delimiter": ";"}, "--delimiter is for files of csv, which"),
    ],
)  # fmt: skip
def test_what_cannot_be_opened_is_one_error(
    tmp_path: Path, name: str, content: bytes, args: dict[str, str], says: str
) -> None:
    (tmp_path / name).write_bytes(content)
    given = [str(tmp_path / name)]
    with pytest.raises(ValueError, match=says) as caught:
        load_splits(DataArguments(train_file=given, validation_file=given, streaming=True, **args))
    assert "\n" not in str(caught.value)


def test_several_files_are_one_set_of_samples(tmp_path: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    (tmp_path / "a.csv").write_text(CSV)
    (tmp_path / "b.csv").write_text("label,text\na,very good\nb,very bad\n")
    data: TaskData = load_text_data(DataArguments(train_file=[f"{tmp_path}/?.csv"]), tokenizer, seed=1)
    assert len(data.train) + len(data.evaluation) == 22  # type: ignore[arg-type]
    (tmp_path / "b.csv").write_text("label,sentence\na,very good\n")
    with pytest.raises(ValueError, match=r"b.csv' has other columns than '.*a.csv': label, sentence"):
        load_text_data(DataArguments(train_file=[f"{tmp_path}/?.csv"]), tokenizer, seed=1)
