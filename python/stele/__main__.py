"""The command `stele`."""

from __future__ import annotations

import sys

from . import _stele


def main() -> int:
    """Runs the command with the arguments of this process."""
    _stele.install_signals()
    status, _ = _stele.Run(["stele", *sys.argv[1:]]).run(False)
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
