#!/usr/bin/env python3
"""Holds examples/wordnet/make_edges.py: what the demo trains on does not give its test away.

Needs Debian's wordnet-base; exits with 77 (skipped) without it.
"""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "examples/wordnet"))
sys.dont_write_bytecode = True
import make_edges  # noqa: E402

WORDNET = pathlib.Path("/usr/share/wordnet")
SYMMETRIC = {make_edges.RELATIONS[symbol] for symbol in make_edges.SYMMETRIC}


def main():
    if not (WORDNET / "data.noun").exists():
        print(f"{WORDNET}/data.noun is not there: skipped")
        sys.exit(77)
    edges = make_edges.one_direction(*make_edges.read_synsets(WORDNET))
    distinct = set(edges)
    parts = make_edges.split(edges, 1, 0.03, 0.03)
    failed = []

    def expect(holds, what):
        if not holds:
            failed.append(what)

    expect(len(edges) == len(distinct) == 186_325, f"{len(edges)} edges, not 186,325")
    expect(not any(rel in SYMMETRIC and (rhs, rel, lhs) in distinct for lhs, rel, rhs in edges),
           "both directions of a symmetric relation")
    names = {end for lhs, _, rhs in edges for end in (lhs, rhs)}
    for synset in ("dog.n.01", "run.v.01", "blue.s.01"):
        expect(synset in names, f"no {synset}")
    expect({"hypernym", "antonym"} <= {rel for _, rel, _ in edges}, "names of relations")

    expect(sorted(e for part in parts.values() for e in part) == sorted(edges),
           "the parts are not the whole")
    # The same two synsets, in either direction and by any relation, are in one part only.
    pairs = [{frozenset((lhs, rhs)) for lhs, _, rhs in part} for part in parts.values()]
    expect(sum(map(len, pairs)) == len(set.union(*pairs)), "a pair of synsets is in several parts")
    expect(all(0.025 < len(parts[p]) / len(edges) < 0.035 for p in ("valid", "test")),
           "sizes of the parts")
    expect(make_edges.split(edges, 1, 0.03, 0.03) == parts, "the same seed gives other parts")
    expect(make_edges.split(edges, 2, 0.03, 0.03)["test"] != parts["test"],
           "another seed gives the same parts")
    for what in failed:
        print(f"wordnet: {what}", file=sys.stderr)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
