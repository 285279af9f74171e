#!/usr/bin/env python3
"""Writes tests/golden/pbg_featurized/edges_0_0.h5: edges with featurized entities as PyTorch-BigGraph
stores them.

    PYTHONPATH=.../PyTorch-BigGraph python3 tests/golden/make_pbg_featurized_edges.py

made with PyTorch-BigGraph at commit 6fccd3f. Relation 0 has featurized entities (of 6 features) on the
left, relation 1 on the right, relation 2 on neither side; see tests/graph/edge_bucket_file_test.cc.
"""

import pathlib

import torch
from torchbiggraph.edgelist import EdgeList
from torchbiggraph.entitylist import EntityList
from torchbiggraph.graph_storages import BufferedDataset, FileEdgeStorage
from torchbiggraph.tensorlist import TensorList


def entities(ids, bags):
    offsets = [0]
    for bag in bags:
        offsets.append(offsets[-1] + len(bag))
    return EntityList(torch.tensor(ids), TensorList(torch.tensor(offsets),
                                                    torch.tensor(sum(bags, []), dtype=torch.long)))


def main():
    BufferedDataset.BUFFER_SIZE = 64  # its chunks of 50 MiB are more than is needed here
    folder = pathlib.Path(__file__).parent / "pbg_featurized"
    storage = FileEdgeStorage(str(folder))
    storage.prepare()
    with storage.save_edges_by_appending(0, 0) as appender:
        appender.append_edges(EdgeList(
            entities([-1, 9, 8], [[5, 0, 5], [], []]),
            entities([3, -1, 4], [[], [1, 2], []]), torch.tensor([0, 1, 2])))
        # Of a piece without any features on a side it would write no offsets for that side.
        appender.append_edges(EdgeList(
            entities([-1, -1, 0], [[], [4], []]),
            entities([0, 7, -1], [[], [], [3]]), torch.tensor([0, 0, 1])))


if __name__ == "__main__":
    main()
