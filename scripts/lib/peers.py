"""What the scripts that run Weft beside PyTorch-BigGraph (PBG) share: graphs, programs, figures."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
WEFT = ROOT / "build/release/bin/weft"


def find_data(name):
    """The folder of a graph below WEFT_DATA_DIR, where it may also lie as NAME.tar.zst."""
    folder = os.environ.get("WEFT_DATA_DIR")
    if not folder:
        sys.exit(f"set WEFT_DATA_DIR to the folder with the graphs ({name} or {name}.tar.zst)")
    path = pathlib.Path(folder).resolve() / name
    if path.is_dir():
        return path
    archive = path.parent / f"{name}.tar.zst"
    if not archive.exists():
        sys.exit(f"neither {path} nor {archive} is there")
    unpacked = pathlib.Path(tempfile.gettempdir()) / "weft-data"
    unpacked.mkdir(exist_ok=True)
    if not (unpacked / name).is_dir():
        subprocess.run(["tar", "--zstd", "-xf", archive, "-C", unpacked], check=True)
    return unpacked / name


def run(command, folder=None, env=None):
    """Runs to the end; gives its output and its peak memory in MB (of the largest process)."""
    child = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True, cwd=folder, env=env)
    output = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if status != 0:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{output[-3000:]}")
    return output, usage.ru_maxrss / 1024


def stats_of(model):
    """[{"loss": mean over edges, "edges": n}] by epoch, from a checkpoint's training_stats.json."""
    epochs = {}
    for line in (pathlib.Path(model) / "training_stats.json").read_text().splitlines():
        line = json.loads(line)
        if "stats" not in line or not line["stats"]["count"]:
            continue
        epoch = epochs.setdefault(line["epoch_idx"], {"loss": 0.0, "edges": 0})
        epoch["edges"] += line["stats"]["count"]
        epoch["loss"] += line["stats"]["count"] * line["stats"]["metrics"]["loss"]
    return [{"edges": e["edges"], "loss": e["loss"] / e["edges"]} for _, e in sorted(epochs.items())]


def blas_kernels():
    """Debian's OpenBLAS does not know newer processors: the best kernels that it has for this one."""
    flags = pathlib.Path("/proc/cpuinfo").read_text().split()
    return "SKYLAKEX" if "avx512vl" in flags else "HASWELL" if "avx2" in flags else "NEHALEM"


# argv: what to do, a configuration in JSON, more. Figures go out as one line of JSON.
RUN_PBG = """
import attr, json, sys
from torchbiggraph.config import parse_config
from torchbiggraph.util import SubprocessInitializer, set_logging_verbosity, setup_logging


def do_train(config, init):
    from torchbiggraph.train import train
    train(config, subprocess_init=init)


def do_eval(config, init, edges, *filters):
    # Against all entities of the loaded partition; with filters as the FB15k example does.
    from torchbiggraph.eval import do_eval_and_report_stats
    from torchbiggraph.filtered_eval import FilteredRankingEvaluator
    config = attr.evolve(config, edge_paths=[edges], num_uniform_negs=0, batch_size=100,
                         relations=[attr.evolve(r, all_negs=True) for r in config.relations])
    evaluator = FilteredRankingEvaluator(config, list(filters)) if filters else None
    *_, (_, _, stats) = do_eval_and_report_stats(config, evaluator=evaluator, subprocess_init=init)
    print("FIGURES " + json.dumps(stats.to_dict()["metrics"]))


def do_export(config, init, entities, relations):
    from torchbiggraph.converters.export_to_tsv import make_tsv
    with open(entities, "xt") as e, open(relations, "xt") as r:
        make_tsv(config, e, r)


def do_forget(config, init):
    # The optimizer's state of all files of a checkpoint.
    from pathlib import Path
    import h5py
    for file in Path(config.checkpoint_path).glob("*.h5"):
        with h5py.File(file, "r+") as hf:
            hf.attrs.pop("weft_xxh3", None)
            del hf["optimizer/state_dict"]


def do_import(config, init, columns, *inputs):
    from pathlib import Path
    from torchbiggraph.converters.importers import TSVEdgelistReader, convert_input_data
    lhs, rel, rhs, weight = [None if c == "-" else int(c) for c in columns.split(",")]
    convert_input_data(config.entities, config.relations, config.entity_path, config.edge_paths,
                       [Path(p) for p in inputs], TSVEdgelistReader(lhs, rhs, rel, weight),
                       dynamic_relations=config.dynamic_relations)


if __name__ == "__main__":
    setup_logging()
    init = SubprocessInitializer()
    init.register(setup_logging, 0)
    config = parse_config(json.load(open(sys.argv[2])))
    globals()["do_" + sys.argv[1]](config, init, *sys.argv[3:])
"""


class Pbg:
    """A checkout of PBG that runs with the system's Python, and OpenBLAS at its best."""

    def __init__(self, checkout, python="/usr/bin/python3"):
        if not (pathlib.Path(checkout) / "torchbiggraph").is_dir():
            sys.exit(f"{checkout} is no checkout of PyTorch-BigGraph")
        blas = os.path.realpath("/usr/lib/x86_64-linux-gnu/libblas.so.3")
        if "openblas" not in blas:
            sys.exit(f"PBG would run on {blas}: install libopenblas0-pthread for a fair peer")
        self.python = python
        self.env = {**os.environ, "PYTHONPATH": str(pathlib.Path(checkout).resolve()),
                    "OPENBLAS_CORETYPE": blas_kernels(), "OMP_NUM_THREADS": "1"}
        self.scratch = tempfile.TemporaryDirectory(prefix="weft-pbg-")
        self.script = pathlib.Path(self.scratch.name) / "run_pbg.py"
        self.script.write_text(RUN_PBG)

    def run(self, what, config, *arguments, folder=None):
        """Output, peak memory in MB."""
        return run([self.python, self.script, what, config, *arguments], folder, self.env)

    def train(self, config, folder=None):
        """Seconds of the training proper (PBG's own report), peak memory in MB."""
        output, memory = self.run("train", config, folder=folder)
        trained = re.findall(r"Trained \d+ edges in ([\d.]+) s", output)
        return sum(map(float, trained)), memory

    def evaluate(self, config, edges, filters=(), folder=None):
        output, _ = self.run("eval", config, edges, *filters, folder=folder)
        return json.loads(re.search(r"^FIGURES (.*)$", output, re.M).group(1))


def write_config(folder, config, name="run.json"):
    path = pathlib.Path(folder) / name
    path.write_text(json.dumps(config, indent=2))
    return path


def fresh(path):
    shutil.rmtree(path, ignore_errors=True)
    return path
