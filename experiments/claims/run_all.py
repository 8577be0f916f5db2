"""Runs every claim of this folder, and writes one page of all.

python experiments/claims/run_all.py                  # minutes for each, on two CPU cores
python experiments/claims/run_all.py --scale toy      # seconds; proves only that the scripts run
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tomllib

__all__ = ["main", "page"]

HERE = pathlib.Path(__file__).parent
STYLE = """body { font-family: sans-serif; max-width: 60em; margin: 2em auto; line-height: 1.4 }
th { text-align: left; vertical-align: top } th, td { padding-right: 1em }
img { max-width: 100% }"""


def scripts() -> list[pathlib.Path]:
    """The scripts of the claims."""
    return [
        HERE / f"{name}.py" for name in tomllib.loads((HERE / "claims.toml").read_text("utf-8"))
    ]


def page(folder: pathlib.Path) -> str:
    """One page of the sections that the scripts have written to a folder; a table comes first."""
    findings = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    rows = "".join(
        f"<tr><td>{finding['title']}</td><td>{finding['verdict']}</td>"
        f"<td>{finding['seconds']} s</td></tr>"
        for finding in findings
    )
    sections = "".join(
        path.with_suffix(".html").read_text() for path in sorted(folder.glob("*.json"))
    )
    return (
        f'<!DOCTYPE html>\n<meta charset="utf-8"><title>Claims</title><style>{STYLE}</style>\n'
        "<h1>Published claims about Transformers, run again with jaxformer</h1>\n"
        "<p>Every rule was written down before its claim was run. Claims that do not hold at this "
        f"size are shown as well.</p>\n<table>{rows}</table>\n{sections}"
    )


def main() -> None:
    """Runs the scripts one after the other; ends with 1 if one of them fails."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--scale", choices=["toy", "cpu"], default="cpu")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("runs/claims"))
    options = parser.parse_args()
    failed = []
    for script in scripts():
        words = [sys.executable, str(script), "--scale", options.scale, "--out", str(options.out)]
        if subprocess.run(words).returncode:
            failed.append(script.name)
    (options.out / "index.html").write_text(page(options.out))
    print(f"page: {options.out / 'index.html'}")
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
