#!/usr/bin/env python3
"""Generates documents, which are bags of words, and who reads them.

    make_edges.py FOLDER [--apart]

writes FOLDER/train.tsv and FOLDER/test.tsv, a line an edge: the words of a document, separated by
commas, and a reader. Each of ten topics has words and readers of its own. A document has five words of
its topic and one of any; it is read by two readers of the topic. The documents of test.tsv are new: no
document of train.tsv has the same words. With --apart all six words are of the topic, so that words of
different topics may lie in different partitions.
"""

import pathlib
import random
import sys

TOPICS = ["music", "sports", "cooking", "travel", "history", "space", "gardens", "cinema", "chess",
          "sailing"]
WORDS = 40  # of each topic
READERS = 20
DOCUMENTS = 8_000
TEST_SHARE = 0.1


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    apart = "--apart" in sys.argv[2:]
    rng = random.Random(1)
    seen = set()
    with open(folder / "train.tsv", "w") as train, open(folder / "test.tsv", "w") as test:
        for _ in range(DOCUMENTS):
            topic = rng.choice(TOPICS)
            words = [f"{topic}_{n}" for n in rng.sample(range(WORDS), 6 if apart else 5)]
            if not apart:
                words.append(f"{rng.choice(TOPICS)}_{rng.randrange(WORDS)}")
            rng.shuffle(words)
            if tuple(sorted(words)) in seen:
                continue
            seen.add(tuple(sorted(words)))
            out = test if rng.random() < TEST_SHARE else train
            for reader in rng.sample(range(READERS), 2):
                out.write(f"{','.join(words)}\tread_by\t{topic}_reader_{reader}\n")


if __name__ == "__main__":
    main()
