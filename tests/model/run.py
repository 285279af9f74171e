#!/usr/bin/env python3
"""Checks the models of the cluster's protocol with spin, and that their weakened variants fail.

Every line of CHECKS is generated, compiled and searched exhaustively in a temporary folder:
  holds    no assertion fails and no state without a next step, unless the model may end there;
  ends     no cycle: with what `holds` shows, every run reaches the end of the model's passes;
  caught   a variant without one of the protocol's rules: the check named must fail;
  happens  the model is not empty: a run is found in which the thing named happens.
Exit code 0, 1 on any surprise, 77 (skipped) without spin or a C compiler.
"""

import argparse
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time

FOLDER = pathlib.Path(__file__).resolve().parent
MEMORY_MB = 3000
SECONDS = 120
SKIPPED = 77

FIGURES = [r"([0-9.e+]+) states, stored", r"depth reached (\d+)",
           r"([0-9.]+)\s+total actual memory"]
END_STATE = "invalid end state"

# (model, what, defines, part of the failing check that must be named, the invariant it is of)
CHECKS = [
    ("lease", "holds", "FAULTS=2"),
    ("lease", "holds", "PASSES=2 FAULTS=1 RESTARTS=0"),
    ("lease", "ends", "FAULTS=1"),
    ("lease", "happens", "REACH_PASS", "done"),
    ("lease", "happens", "REACH_EXPIRY", "expired"),
    ("lease", "happens", "REACH_LOOK_AHEAD", "handed_on"),
    ("lease", "holds", "PER_LEASE FAULTS=1"),
    ("lease", "holds", "NO_BASE_COMPARISON FAULTS=1"),
    ("lease", "caught", "PER_LEASE NO_BASE_COMPARISON FAULTS=1", "content", "I2"),
    ("lease", "caught", "STALE_NAME FAULTS=1", "content", "I2"),
    ("lease", "caught", "UPLOAD_LIVE_TABLE FAULTS=0", "content", "I2"),
    ("lease", "caught", "NO_LIVENESS_CHECK FAULTS=1", "status", "I4"),
    ("lease", "caught", "NO_ACQUIRE_NUMBER FAULTS=0", END_STATE, "I6, I8"),
    ("lease", "caught", "VOLATILE_EXPIRY FAULTS=1", "holder", "I1"),
    ("lease", "caught", "ACKNOWLEDGE_EARLY FAULTS=0", "answered", "I5"),

    ("versions", "holds", ""),
    ("versions", "ends", "RESTARTS=1"),
    ("versions", "happens", "REACH_PASS", "done"),
    ("versions", "happens", "REACH_EXPIRY", "faults"),
    ("versions", "happens", "REACH_REWIND", "rewinds"),
    ("versions", "happens", "REACH_REWIND_TO_START", "rewinds"),
    ("versions", "caught", "SWEEP_WITHOUT_GRANTS", "blobs", "I3"),
    ("versions", "caught", "SWEEP_WITHOUT_MARK", "blobs", "I3"),
    ("versions", "caught", "SWEEP_WITHOUT_PENDING", "blobs", "I3"),
    ("versions", "caught", "RELEASE_IGNORES_INCARNATION", "blobs", "I3"),
    ("versions", "caught", "REGISTER_KEEPS_PLACES", "blobs", "I3"),
    ("versions", "caught", "COMMIT_UNPERSISTED", "blobs", "I3"),
    ("versions", "caught", "REWIND_KEEPS_GRANTS", "outlived", "I10"),

    ("params", "holds", ""),
    ("params", "ends", "RESTARTS=1"),
    ("params", "happens", "REACH_PASS", "made"),
    ("params", "happens", "REACH_LOSS", "value"),
    ("params", "happens", "REACH_REPEAT", "repeated"),
    ("params", "caught", "RECOMPUTED_RETRY", "value", "I9"),
    ("params", "caught", "NEW_BYTES_OLD_NUMBER", "value", "I9"),
    ("params", "caught", "CURSOR_WITHOUT_INCARNATION", "value", "I9"),
    ("params", "caught", "TIED_VERSIONS", "value", "I9"),
    ("params", "caught", "OVERWRITING_MERGE", "value", "I9"),
    ("params", "caught", "UNSYNCED_FLUSH", "synced_applied", "I9"),
    ("params", "caught", "RELEASE_BEFORE_FLUSH", "waiting", "I9"),
]


def limit_memory():
    size = MEMORY_MB << 20
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    if most == resource.RLIM_INFINITY or most > size:
        resource.setrlimit(resource.RLIMIT_AS, (size, size))


def call(command, folder):
    return subprocess.run(command, cwd=folder, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=SECONDS, preexec_fn=limit_memory)


def flags_of(defines):
    return ["-D" + define for define in defines.split()]


def search(compiler, model, what, defines, message, folder):
    """Returns what pan says, or raises RuntimeError."""
    made = call(["spin", "-a", *flags_of(defines), str(FOLDER / f"{model}.pml")], folder)
    if made.returncode != 0 or "rror:" in made.stdout:
        raise RuntimeError("spin: " + made.stdout.strip())
    kind = "-DNP" if what == "ends" else "-DSAFETY"
    built = call([compiler, "-O2", "-w", kind, "-DCOLLAPSE", "-DVECTORSZ=512",
                  f"-DMEMLIM={MEMORY_MB}", "-o", "pan", "pan.c"], folder)
    if built.returncode != 0:
        raise RuntimeError("compiler: " + built.stdout.strip())
    # -c1: the first error ends the search; -w22: 4 million slots of the table of states, it grows.
    command = ["./pan", "-m100000", "-w22", "-c1"]
    if what == "ends":
        command.append("-l")
    elif message and message != END_STATE:
        command.append("-E")  # an assertion is meant: a run that got stuck does not count
    return call(command, folder).stdout


def number(pattern, text):
    found = re.search(pattern, text)
    return int(float(found.group(1))) if found else None


def judge(what, message, invariant, output):
    """Returns (as expected?, verdict)."""
    errors = number(r"errors: (\d+)", output)
    found = re.search(r"^pan:\d+: (.*)$", output, re.MULTILINE)
    said = re.sub(r"\s+", " ", found.group(1)) if found else ""
    if errors is None:
        return False, "no result: " + " ".join(output.split())[-200:]
    if "Search not completed" in output and errors == 0 or "max search depth" in output:
        return False, "search not completed"
    if what in ("holds", "ends"):
        return errors == 0, what if errors == 0 else said
    if errors == 0:
        return False, "NOT " + what.upper()
    if message not in said:
        return False, "another check failed: " + said
    return True, f"{what} by {invariant}" if invariant else what


def steps(model, defines, folder):
    """Yields the steps of the run that was found: name and condition, which shows who it is about."""
    told = call(["spin", "-k", f"{model}.pml.trail", "-p", *flags_of(defines),
                 str(FOLDER / f"{model}.pml")], folder)
    yield from steps_in(told.stdout, (FOLDER / f"{model}.pml").read_text().splitlines())


def steps_in(told, lines):
    seen = set()
    for line in told.splitlines():
        at = re.match(r"\s*(\d+):.*\.pml:(\d+) \(state \d+\)\s*\[(.*)\]", line)
        if not at or at.group(1) in seen:
            continue
        seen.add(at.group(1))
        above = reversed(lines[:int(at.group(2))])
        name = next((l for l in above if re.match(r"inline|init", l)), "")
        name = name.removeprefix("inline ").removesuffix(" {")
        if not name.startswith(("settle", "init")):
            yield f"{name}: {at.group(3)[:90]}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("only", nargs="?", default="",
                        help="only the checks whose line contains this")
    parser.add_argument("--steps", action="store_true",
                        help="print the run that a violation was found in")
    options = parser.parse_args()

    compiler = next((c for c in (os.environ.get("CC"), "gcc", "cc") if c and shutil.which(c)), None)
    for tool, path in (("spin", shutil.which("spin")), ("a C compiler", compiler)):
        if not path:
            print(f"skipped: {tool} is not installed (scripts/setup installs it)")
            return SKIPPED

    surprises = 0
    began = time.monotonic()
    print(f"{'model':9}{'states':>10}{'depth':>7}{'MB':>7}{'s':>7}  variant: verdict")
    for model, what, defines, *expected in CHECKS:
        message, invariant = (expected + ["", ""])[:2]
        if options.only not in f"{model} {what} {defines}":
            continue
        start = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="weft-model-") as folder:
            try:
                output = search(compiler, model, what, defines, message, folder)
                good, verdict = judge(what, message, invariant, output)
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                output, good, verdict = "", False, str(error)
            trail = list(steps(model, defines, folder)) if options.steps or not good else []
        surprises += not good
        figures = [number(pattern, output) or 0 for pattern in FIGURES]
        print(f"{model:9}{figures[0]:10}{figures[1]:7}{figures[2]:7}"
              f"{time.monotonic() - start:7.1f}  {'' if good else 'SURPRISE '}"
              f"{defines or '-'}{' (cycles)' if what == 'ends' else ''}: {verdict}", flush=True)
        for line in trail:
            print("    " + line)
    print(f"{surprises} surprises, {time.monotonic() - began:.0f} s")
    return 1 if surprises else 0


if __name__ == "__main__":
    sys.exit(main())
