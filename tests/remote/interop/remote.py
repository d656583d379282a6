#!/usr/bin/env python3
"""Proves that `stele` reads and writes URLs as other programs do, and what happens when something fails.

remote.py STELE WORK [CHECK...]    STELE: the command; WORK: a folder for files (about 500 MB); CHECK: names below

    stores  moto: files up and down, compared with boto3; odd keys; folders; saves that fail leave nothing
    signer  versitygw, which verifies signatures (built with Go below WORK; without Go it is skipped)
    web     nginx with TLS: ranges, certificates, the cost of an inspect; http.server: no ranges
    kills   the command is killed while it saves over an object: the old object or the new one
    steps   training runs (in Python) are killed while they save steps; every run resumes the last saved one
    lost    a store that refuses some requests of an upload
    faults  a proxy that cuts, delays and refuses 30 % of the requests

Packages: requirements.txt; nginx and openssl from the system. All takes about ten minutes.
"""
import sys
import time
import traceback
from pathlib import Path

from common import Failure, Stele
from faults import check_faults, check_kills, check_lost_parts
from steps import check_steps
from stores import check_moto, check_signer
from web import check_web

MAX_MESSAGE = 1500  # characters
CHECKS = {"stores": check_moto, "signer": check_signer, "web": check_web, "kills": check_kills, "steps": check_steps,
          "lost": check_lost_parts, "faults": check_faults}


def main(arguments):
    names = arguments[2:] or list(CHECKS)
    if len(arguments) < 2 or not set(names) <= set(CHECKS):
        print(__doc__)
        return 2
    work = Path(arguments[1]).resolve()
    work.mkdir(parents=True, exist_ok=True)
    stele = Stele(arguments[0], work / "home")
    for name in names:
        begun = time.monotonic()
        try:
            CHECKS[name](stele, work)
        except Exception as error:
            if not isinstance(error, Failure):
                traceback.print_exc()
            print(f"FAILED  {name}: {str(error)[:MAX_MESSAGE]}", flush=True)
            return 1
        print(f"        {name}: {time.monotonic() - begun:.0f} s", flush=True)
    print("all agree")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
