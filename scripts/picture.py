"""Make docs/report.png: the demo's report as a reader sees it.

preceptor demo --out demo && python scripts/picture.py demo/report.html
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

TARGET = Path(__file__).resolve().parents[1] / "docs" / "report.png"
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--disable-sync",
         "--disable-background-networking", "--disable-component-update")  # fmt: skip


def main() -> None:
    """Take the picture."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None or len(sys.argv) != 2:
        raise SystemExit("usage: python scripts/picture.py REPORT.html (needs chromium)")
    page = Path(sys.argv[1]).resolve().as_uri()
    with tempfile.TemporaryDirectory() as profile:
        command = [
            browser,
            *FLAGS,
            f"--user-data-dir={profile}",
            "--window-size=1000,1720",
            f"--screenshot={TARGET}",
            page,
        ]
        subprocess.run(command, check=True, capture_output=True)
    print(f"wrote {TARGET}")


if __name__ == "__main__":
    main()
