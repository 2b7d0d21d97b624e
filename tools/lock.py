"""Print the tested set with the hash of every file, for pip install --require-hashes -r requirements.lock.

    python tools/lock.py > requirements.lock

pip resolves what pyproject.toml asks for at the versions of constraints.txt, for this system and Python; nothing is
installed.
"""

import json
import platform
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def main() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    wanted = [
        *project["dependencies"],
        *(line for extra in project["optional-dependencies"].values() for line in extra),
    ]
    flags = ["--quiet", "--dry-run", "--ignore-installed", "--disable-pip-version-check", "--report", "-"]
    command = [sys.executable, "-m", "pip", "install", *flags, "-c", str(ROOT / "constraints.txt"), *wanted]
    report = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    system = f"{platform.system()} {platform.machine()}"
    print(f"# The tested set: Python {platform.python_version()}, {system}, torch for CPUs")
    print("# python tools/lock.py > requirements.lock")
    for one in sorted(report["install"], key=lambda one: one["metadata"]["name"].lower()):
        hashes = one["download_info"]["archive_info"]["hashes"]
        version = one["metadata"]["version"].partition("+")[0]
        print(f"{one['metadata']['name']}=={version} --hash=sha256:{hashes['sha256']}")


if __name__ == "__main__":
    main()
