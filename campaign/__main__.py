"""python -m campaign --kills 200 --damages 2000 --inputs 20000: prints a table, exits with 1 where anything was bad.

Stopped early (Ctrl-C, SIGTERM), it prints the table of what was done; another --seed is another part of a longer one.
"""

import argparse
import os
import signal
import sys
import tempfile
from pathlib import Path

from pdeplus.errors import Stopped

from .tally import Tally


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m campaign", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=200, metavar="N", help="kills at random moments (default: 200)")
    parser.add_argument("--damages", type=int, default=2000, metavar="N", help="damaged files (default: 2000)")
    parser.add_argument("--inputs", type=int, default=20_000, metavar="N", help="fuzzed inputs (default: 20000)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="another campaign (default: 0)")
    parser.add_argument("--only", default="", metavar="WORD", help="readers and commands whose names have this in them")
    options = parser.parse_args()
    tally = Tally()
    with tempfile.TemporaryDirectory(prefix="campaign-") as scratch:
        folder = Path(scratch)
        (folder / "work").mkdir()
        os.chdir(folder / "work")  # where hostile files would leave their traces
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            for name, number in (("fuzz", options.inputs), ("damage", options.damages), ("kill", options.kills)):
                if number:
                    print(f"{name}: {number} …", file=sys.stderr)
                    _part(name, tally, number, options.seed, folder / name, options.only)
        except (KeyboardInterrupt, Stopped):  # the second while a run is resumed, which has its own handlers
            print("stopped; what was done until then:", file=sys.stderr)
        os.chdir(folder.parent)
        print(tally.table(), flush=True)  # before the files are removed, which takes a while
        print("\n".join(dict.fromkeys(tally.bad)), file=sys.stderr)
    sys.exit(bool(tally.bad))


def _part(name: str, tally: Tally, number: int, seed: int, folder: Path, only: str) -> None:
    folder.mkdir()
    if name == "fuzz":
        from .fuzz import fuzz

        fuzz(tally, number, seed, folder, only)
    elif name == "damage":
        from .damage import damage

        damage(tally, number, seed, folder)
    else:
        from .kills import kill

        kill(tally, number, seed, folder, only)


if __name__ == "__main__":  # whose processes import it again
    main()
