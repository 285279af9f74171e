#!/usr/bin/env python3
"""Turns Debian's wordnet-base (WordNet 3.0) into train, valid and test edges.

Entities are synsets, named like `dog.n.01`: the synset's first word, its part of speech, and the
rank of this sense among the word's senses. Relations are WordNet's pointers.

Nearly every pointer has its inverse in the database (hypernym and hyponym, meronym and holonym) or
is symmetric (antonym). A random split would put one of the two into the test set and the other into
the training set, and the test would measure nothing. So one direction of each pair is kept, and all
edges between the same two synsets go to the same part.
"""

import argparse
import collections
import pathlib
import random
import sys

# Pointer symbol -> relation. Symbols that are missing here are the inverses of others that are here:
# ~ ~i (hyponyms), #m #s #p (holonyms), -c -r -u (members of a domain).
RELATIONS = {
    "@": "hypernym",
    "@i": "instance_hypernym",
    "%m": "member_meronym",
    "%s": "substance_meronym",
    "%p": "part_meronym",
    ";c": "domain_topic",
    ";r": "domain_region",
    ";u": "domain_usage",
    "*": "entailment",
    ">": "cause",
    "<": "participle",
    "\\": "pertainym",
    "!": "antonym",
    "=": "attribute",
    "+": "derivationally_related",
    "^": "also_see",
    "$": "verb_group",
    "&": "similar_to",
}
INVERSES = {"~": "@", "~i": "@i", "#m": "%m", "#s": "%s", "#p": "%p",
            "-c": ";c", "-r": ";r", "-u": ";u"}
SYMMETRIC = {"!", "=", "+", "^", "$", "&"}
PARTS = {"noun": "n", "verb": "v", "adj": "a", "adv": "r"}


def data_lines(path):
    with open(path, encoding="ascii") as lines:
        for line in lines:
            if not line.startswith("  "):  # the licence at the top
                yield line


def read_ranks(folder):
    """(part of speech, lemma, offset) -> rank of the sense, from 1."""
    ranks = {}
    for part, pos in PARTS.items():
        for line in data_lines(folder / f"index.{part}"):
            fields = line.split()
            num_synsets = int(fields[2])
            for rank, offset in enumerate(fields[-num_synsets:], start=1):
                ranks[pos, fields[0], offset] = rank
    return ranks


def read_synsets(folder):
    """Names by (part of speech, offset), and pointers as (source key, symbol, target key)."""
    ranks = read_ranks(folder)
    names = {}
    pointers = []
    for part, pos in PARTS.items():
        for line in data_lines(folder / f"data.{part}"):
            fields = line.split(" | ")[0].split()
            offset, kind, num_words = fields[0], fields[2], int(fields[3], 16)
            word = fields[4].split("(")[0].lower()  # "galore(ip)": a marker of some adjectives
            names[pos, offset] = f"{word}.{kind}.{ranks[pos, word, offset]:02d}"
            at = 4 + 2 * num_words
            for p in range(int(fields[at])):
                symbol, target, target_pos = fields[at + 1 + 4 * p:at + 4 + 4 * p]
                pointers.append(((pos, offset), symbol, (target_pos.replace("s", "a"), target)))
    return names, pointers


def one_direction(names, pointers):
    """Distinct (lhs, relation, rhs) by name, one direction of each pair, in a fixed order."""
    edges = {}
    for source, symbol, target in pointers:
        if source == target:
            continue
        lhs, rhs = names[source], names[target]
        if symbol in INVERSES:
            lhs, symbol, rhs = rhs, INVERSES[symbol], lhs
        if symbol in SYMMETRIC and lhs > rhs:
            lhs, rhs = rhs, lhs
        edges[lhs, RELATIONS[symbol], rhs] = None
    return list(edges)


def split(edges, seed, valid_fraction, test_fraction):
    by_pair = collections.defaultdict(list)
    for edge in edges:
        by_pair[min(edge[0], edge[2]), max(edge[0], edge[2])].append(edge)
    pairs = sorted(by_pair)
    random.Random(seed).shuffle(pairs)
    num_valid = int(len(pairs) * valid_fraction)
    num_test = int(len(pairs) * test_fraction)
    parts = {"valid": pairs[:num_valid], "test": pairs[num_valid:num_valid + num_test],
             "train": pairs[num_valid + num_test:]}
    return {name: [e for pair in part for e in by_pair[pair]] for name, part in parts.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=pathlib.Path, help="folder for train.tsv, valid.tsv, test.tsv")
    parser.add_argument("--wordnet", type=pathlib.Path, default=pathlib.Path("/usr/share/wordnet"),
                        help="folder with data.noun, index.noun, ... (package wordnet-base)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--valid-fraction", type=float, default=0.03)
    parser.add_argument("--test-fraction", type=float, default=0.03)
    args = parser.parse_args()

    if not (args.wordnet / "data.noun").exists():
        sys.exit(f"{args.wordnet}/data.noun is not there: install Debian's package wordnet-base")
    names, pointers = read_synsets(args.wordnet)
    edges = one_direction(names, pointers)
    args.output.mkdir(parents=True, exist_ok=True)
    for name, part in split(edges, args.seed, args.valid_fraction, args.test_fraction).items():
        with open(args.output / f"{name}.tsv", "w", encoding="ascii") as out:
            out.writelines(f"{lhs}\t{relation}\t{rhs}\n" for lhs, relation, rhs in part)
        print(f"{name}: {len(part):,} edges -> {args.output / name}.tsv")
    used = {e[0] for e in edges} | {e[2] for e in edges}
    print(f"WordNet: {len(names):,} synsets, {len(pointers):,} pointers; kept one direction: "
          f"{len(edges):,} edges over {len(used):,} synsets")


if __name__ == "__main__":
    main()
