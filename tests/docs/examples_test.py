#!/usr/bin/env python3
"""Runs the commands of the READMEs in examples/, and those of the README for a graph of one's own, as
they stand there, over small generated graphs that have the names of the real ones, and holds what
they come to.

  tests/docs/examples_test.py WEFT [PAGE ...]
"""

import gzip
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]


def write_lines(path, lines):
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")


def knowledge_graph(folder):
    """On a ring of 200 entities each relation goes a distance of its own; its inverse goes back."""
    rng = random.Random(1)
    edges = [f"/m/{i}\t/r/{r}\t/m/{(i + step) % 200}"
             for i in range(200) for r, step in enumerate((1, -1, 7, -7, 31, -31))]
    rng.shuffle(edges)
    write_lines(folder / "train.txt", edges[:1000])
    write_lines(folder / "valid.txt", edges[1000:1100])
    write_lines(folder / "test.txt", edges[1100:])


def own_graph(folder):
    knowledge_graph(folder)
    (folder / "train.txt").rename(folder / "graph.tsv")
    (folder / "test.txt").rename(folder / "test.tsv")


def social_network(folder):
    """Groups of 20 whose members follow each other."""
    rng = random.Random(2)
    edges = [f"{20 * group + a}\t{20 * group + b}"
             for group in range(30) for a in range(20) for b in range(20)
             if a != b and rng.random() < 0.5]
    rng.shuffle(edges)
    with gzip.open(folder / "soc-LiveJournal1.txt.gz", "wt", encoding="utf-8") as out:
        out.write("# Directed graph\n# Small\n# Nodes, edges\n# FromNodeId\tToNodeId\n")
        out.writelines(edge + "\n" for edge in edges)


def readers_and_books(folder):
    """Readers of a genre read the books of the genre."""
    rng = random.Random(3)
    edges = [f"u{u}\ti{20 * (u % 10) + b}" for u in range(300) for b in range(20)
             if rng.random() < 0.5]
    rng.shuffle(edges)
    write_lines(folder / "train.txt", edges[:-300])
    write_lines(folder / "test.txt", edges[-300:])


# Page: its graph, and the least filtered MRR (chance: 0.03, 0.01, 0.03, 0.03).
CASES = {"examples/fb15k": (knowledge_graph, 0.5), "examples/livejournal": (social_network, 0.1),
         "examples/bipartite": (readers_and_books, 0.15), ".": (own_graph, 0.5)}
# What a reader puts in.
PLACEHOLDERS = {"NAME": "/m/1", "A": "/m/1", "R": "/r/0"}


def commands_of(readme):
    script = "\n".join(re.findall(r"^```sh\n(.*?)^```$", readme, re.M | re.S))
    for name, value in PLACEHOLDERS.items():
        script = re.sub(rf"(--\w+) {name}\b", rf"\1 {value}", script)
    return script


def run(page, weft):
    make_graph, bar = CASES[page]
    example = ROOT / page
    script = commands_of((example / "README.md").read_text(encoding="utf-8"))
    if script.count("weft ") < 3:
        sys.exit(f"{page}: README.md has no commands")
    with tempfile.TemporaryDirectory(prefix="weft-example-") as name:
        folder = pathlib.Path(name)
        make_graph(folder)
        if (example / "config.json").exists():
            (folder / "config.json").write_bytes((example / "config.json").read_bytes())
        env = {**os.environ, "PATH": f"{weft.parent}:{os.environ['PATH']}"}
        done = subprocess.run(["bash", "-euo", "pipefail", "-c", script], cwd=folder, text=True,
                              env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode != 0:
            sys.exit(f"{page}: failed\n{done.stdout[-3000:]}")
        mrr = json.loads((folder / "report.json").read_text())["filtered"]["mrr"]
    print(f"{page}: filtered MRR {mrr:.3f}, at least {bar}", flush=True)
    return mrr >= bar


def main():
    weft = pathlib.Path(sys.argv[1]).resolve()
    results = [run(page, weft) for page in sys.argv[2:] or CASES]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
