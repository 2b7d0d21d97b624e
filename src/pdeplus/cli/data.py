"""List data sets, and download them.

pdeplus data list
pdeplus data get cifar10 --root datasets
"""

import argparse

from ..errors import UserError


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("list", "get"))
    parser.add_argument("name", nargs="?", help="data set to get")
    where = "data folder (default: $PDEPLUS_DATA, else ~/.cache/pdeplus)"
    parser.add_argument("--root", default="", metavar="DIR", help=where)


def run(options: argparse.Namespace) -> None:
    """Print where each data set is, or where the new one is now."""
    from ..data._download import describe_data, get

    if (options.action == "get") != (options.name is not None):
        raise UserError("data list takes no name; data get NAME takes one")
    print(get(options.name, options.root) if options.name else describe_data(options.root))
