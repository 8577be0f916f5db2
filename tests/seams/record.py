"""Records golden.json: python -m tests.seams.record

To be read in the difference that it makes: each line that changed is a change of behaviour.
"""

import contextlib
import json
import tempfile

import tests.conftest  # noqa: F401  (the settings of the tests)
from tests.seams.cases import CASES
from tests.seams.seams import GOLDEN


def main() -> None:
    """Runs all cases, each in a folder of its own."""
    records = {}
    for name, make in CASES.items():
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            records[name] = make()
    GOLDEN.write_text(json.dumps(records, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
