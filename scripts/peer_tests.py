"""Run transformers' own model tests against hf_ffn's classes: `python scripts/peer_tests.py [pytest's arguments]`.

The tests come from the source package of the installed transformers version, fetched once into `.cache/peer-tests`;
`tests/peer/check_models.py` puts our classes into them.
"""

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
VERSION = metadata.version("transformers")
CACHE = ROOT / ".cache" / "peer-tests"
CHECKS = "tests/peer/check_models.py"

# What is unpacked. It becomes a package of its own name, for `tests` is what this project's own tests are called.
PACKAGE = "transformers_tests"
MODULES = ("test_modeling_common.py", "test_configuration_common.py")

# What these modules import that the source package lacks: two mixins that add tests of their own, which stay empty
# here, and the values that ConfigTester passes to every configuration, looking for them afterwards.
STUBS = {
    "__init__.py": "",
    "exporters/__init__.py": "",
    "exporters/test_export.py": "class ExportTesterMixin: ...\n",
    "generation/__init__.py": "",
    "generation/test_utils.py": "class GenerationTesterMixin: ...\n",
    "utils/__init__.py": "",
    "utils/test_configuration_utils.py": """config_common_kwargs = {
    "architectures": ["FFNTextModel"],
    "chunk_size_feed_forward": 3,
    "dtype": "float16",
    "id2label": {0: "no", 1: "maybe", 2: "yes"},
    "label2id": {"no": 0, "maybe": 1, "yes": 2},
    "output_attentions": True,
    "output_hidden_states": True,
    "problem_type": "multi_label_classification",
    "return_dict": False,
}
""",
}

# Tests that are run for neither of our test classes, with the design decision that each conflicts with.
TEST_CLASSES = ("FFNTextModelTest", "FFNVisionModelTest")
DESELECTED = {
    "test_can_load_ignoring_mismatched_shapes": "expects an error for num_labels=42 on a trained classifier, "
    "where hf_ffn keeps the rows that are there, makes the others and reports it",
    "test_load_with_mismatched_shapes": "expects the same error, a RuntimeError where hf_ffn raises ValueError, "
    "and transformers' load report, which hf_ffn's own replaces",
}


def fetch_tests(version: str) -> Path:
    """The folder that holds transformers' test modules as a package; downloaded where the cache has none.

    Raises:
        CalledProcessError: pip could not download the source package.
    """
    folder = CACHE / version
    if folder.exists():
        return folder
    CACHE.mkdir(parents=True, exist_ok=True)
    # Made beside and moved into place at the end, so that an interrupted download leaves no half a cache.
    with tempfile.TemporaryDirectory(dir=CACHE, prefix=f".{version}-") as temporary:
        stage = Path(temporary)
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        requirement = ["--no-binary", "transformers", f"transformers=={version}"]
        subprocess.run([*pip, *requirement, "--dest", stage], check=True)
        package = stage / "ready" / PACKAGE
        for name, content in STUBS.items():
            path = package / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        with tarfile.open(stage / f"transformers-{version}.tar.gz") as archive:
            for name in MODULES:
                member = archive.extractfile(f"transformers-{version}/tests/{name}")
                assert member is not None
                with member, (package / name).open("wb") as file:
                    shutil.copyfileobj(member, file)
        (stage / "ready").replace(folder)
    return folder


class Tally:
    """A pytest plugin that counts tests by outcome.

    A test with subtests counts once: as failed or skipped where one of them was.
    """

    def __init__(self) -> None:
        self.outcomes: dict[str, set[str]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        # Setting up and tearing down count where they fail, or skip the test.
        if report.when == "call" or not report.passed:
            self.outcomes.setdefault(report.nodeid, set()).add(report.outcome)

    def counts(self) -> Counter[str]:
        """Number of tests that passed, failed and were skipped."""
        worst_first = ("failed", "skipped", "passed")
        return Counter(next(name for name in worst_first if name in found) for found in self.outcomes.values())


def main(arguments: list[str]) -> int:
    """Fetch, run, and print the counts.

    Args:
        arguments: passed on to pytest, for example `-k save_load`.

    Returns:
        The exit status: pytest's own, 0 only where nothing failed.
    """
    try:
        tests = fetch_tests(VERSION)
    except subprocess.CalledProcessError:
        print(f"pip could not download the source of transformers {VERSION}, as it says above", file=sys.stderr)
        return 1
    os.chdir(ROOT)
    # pytest's worker processes find the package and ours through the environment.
    paths = [str(tests), str(ROOT), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    sys.path[:0] = paths[:2]

    deselect = [f"--deselect={CHECKS}::{test_class}::{test}" for test_class in TEST_CLASSES for test in DESELECTED]
    # transformers' markers are unknown here, and --strict-markers would refuse them.
    settings = ["-o", "addopts=--import-mode=importlib", "-W", "ignore::pytest.PytestUnknownMarkWarning"]
    # Thousands of passed subtests would fill the screen.
    settings += ["-o", "verbosity_subtests=0"]
    tally = Tally()
    status = pytest.main(["-n", "2", "-q", *settings, *deselect, *arguments, CHECKS], plugins=[tally])

    counts = tally.counts()
    counts["deselected"] = len(deselect)
    print(f"\ntransformers {VERSION}'s own model tests on hf_ffn's classes:")
    print("  " + ", ".join(f"{counts[name]} {name}" for name in ("passed", "failed", "skipped", "deselected")))
    for test, reason in DESELECTED.items():
        print(f"  deselected in each class: {test} ({reason})")
    return int(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
