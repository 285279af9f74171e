#!/usr/bin/env python3
"""Holds the layers of the source tree: which files may include what.

Reads every #include of the tree; needs no compiler. Each rule says which files it is about, which
includes are forbidden there, and which files are excepted.
"""

import fnmatch
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ["services", "graph", "cli", "tests", "benchmarks", "examples"]
INCLUDE = re.compile(r'^\s*#\s*include\s+[<"]([^>"]+)[>"]')

TORCH = ["torch/", "ATen/", "c10/", "caffe2/"]
PRODUCTION = ["services/*", "graph/*", "cli/*"]

# (what the rule says, files, forbidden include prefixes or patterns, excepted files)
RULES = [
    ("torch/torch.h costs 15 s a file: include the ATen headers that are needed",
     ["*"], ["torch/torch.h", "torch/extension.h"], []),
    ("LibTorch is included below services/trainer/nn only",
     ["*"], TORCH, ["services/trainer/nn/*", "tests/trainer/reference_*", "tests/trainer/oracle_*",
                    "examples/own_operator/*"]),
    ("oneDNN and Highway stop at services/trainer/kernels",
     PRODUCTION, ["dnnl", "oneapi/", "hwy/"], ["services/trainer/kernels/*"]),
    ("HDF5 stops at graph/hdf5_file.h",
     PRODUCTION, ["hdf5.h", "H5"], ["graph/hdf5_handle.*", "graph/hdf5_output.*",
                                    "graph/hdf5_reader.cc", "graph/hdf5_writer.cc"]),
    ("libzip stops at graph/checkpoint",
     PRODUCTION, ["zip.h"], ["graph/checkpoint/*.cc"]),
    ("generated protobuf code stays out of logic",
     PRODUCTION, ["*.pb.h", "google/protobuf/"],
     ["services/common/run_config*.cc", "services/common/config_*",
      "services/lock_server/run_codec*", "services/*/*_service_impl.*",
      "services/*/grpc_*_client.*", "services/*/*_convert.*", "services/common/rpc/*",
      "services/*/main.cc", "cli/run_status.h"]),
    ("JSON stays in .cc files",
     ["services/*.h", "graph/*.h"], ["nlohmann/"], ["services/common/config_*"]),
    ("OpenSSL stops at services/common/rpc/tls_files.cc",
     ["*"], ["openssl/"], ["services/common/rpc/tls_files.cc"]),
    ("RocksDB stops at the stores that adapt it",
     PRODUCTION, ["rocksdb/"], ["services/*/rocksdb_*.cc", "services/common/rocksdb_log.h"]),
    ("Prometheus stops at services/common/metrics_prometheus.cc, HTTP at metrics_server.cc",
     PRODUCTION, ["prometheus/", "civetweb.h"],
     ["services/common/metrics_prometheus.cc", "services/common/metrics_server.cc"]),
    ("gRPC stays in service implementations, clients and mains",
     PRODUCTION, ["grpc", "grpcpp/"],
     ["services/*/*_service_impl.*", "services/*/grpc_*_client.*", "services/common/rpc/*",
      "services/*/main.cc"]),
    ("absl::Mutex is invisible to ThreadSanitizer: services/common/mutex.h instead",
     ["*"], ["absl/synchronization/mutex.h"], []),
    ("graph/ knows services/common only",
     ["graph/*"], ["services/lock_server/", "services/param_server/", "services/partition_server/",
                   "services/trainer/", "cli/"], []),
    ("nobody includes the command line",
     ["services/*", "graph/*", "benchmarks/*"], ["cli/"], []),
    ("services meet only in local_* files and in the command line",
     ["services/lock_server/*"], ["services/param_server/", "services/partition_server/",
                                  "services/trainer/"], ["*/local_*"]),
    ("services meet only in local_* files and in the command line; what a run begins with is the "
     "model's, and snapshots lie at partition servers",
     ["services/param_server/*"], ["services/lock_server/", "services/partition_server/",
                                   "services/trainer/"],
     ["*/local_*", "include:services/trainer/model/model_parameters.h",
      "include:services/trainer/model/model_spec.h",
      "include:services/partition_server/blob_format.h",
      "include:services/partition_server/blob_transfer.h",
      "include:services/partition_server/grpc_blob_client.h"]),
    ("services meet only in local_* files and in the command line; PartitionVersion is lock_client.h's",
     ["services/partition_server/*"], ["services/param_server/", "services/trainer/"], ["*/local_*"]),
    ("the trainer knows the other services by their client interfaces",
     ["services/trainer/*"],
     ["services/lock_server/", "services/param_server/", "services/partition_server/"],
     ["*/local_*", "services/trainer/cluster/*", "include:services/lock_server/lock_client.h",
      "include:services/param_server/param_client.h",
      "include:services/partition_server/partition_client.h"]),
    ("production code includes no test code",
     PRODUCTION, ["tests/", "gtest/", "gmock/"], []),
]


def matches(name, patterns):
    return any(fnmatch.fnmatchcase(name, p) for p in patterns)


def forbidden(include, prefixes):
    return any(include.startswith(p) or fnmatch.fnmatchcase(include, p) for p in prefixes)


def violations(name, lines):
    for number, line in enumerate(lines, start=1):
        found = INCLUDE.match(line)
        if not found:
            continue
        include = found.group(1)
        for rule, files, prefixes, excepted in RULES:
            if not matches(name, files) or not forbidden(include, prefixes):
                continue
            if matches(name, excepted) or f"include:{include}" in excepted:
                continue
            yield f"{name}:{number}: includes {include}: {rule}"


def source_files():
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".h", ".cc"):
                yield path


def unlisted_sources():
    """A source file that no CMakeLists.txt names is never built, and a test in it never runs."""
    listed = set()
    for cmake in ROOT.rglob("CMakeLists.txt"):
        if "build" in cmake.relative_to(ROOT).parts:
            continue
        for token in re.findall(r"[\w./$+{}-]+\.cc", cmake.read_text()):
            listed.add(pathlib.PurePath(token.replace("${PROJECT_SOURCE_DIR}/", "")).name)
    for path in source_files():
        if path.suffix == ".cc" and path.name not in listed:
            yield f"{path.relative_to(ROOT)}: named in no CMakeLists.txt, so never built"


def self_test():
    """The rules catch what they are for."""
    bad = [("services/trainer/training_loop.cc", "ATen/core/Tensor.h"),
           ("graph/entity_files.cc", "services/trainer/batch_step.h"),
           ("services/lock_server/bucket_scheduler.h", "weft/v1/lock_service.pb.h"),
           ("services/trainer/training_loop.cc", "services/lock_server/bucket_scheduler.h"),
           ("services/trainer/fused/score.cc", "dnnl.hpp")]
    good = [("services/trainer/training_loop.cc", "services/lock_server/lock_client.h"),
            ("services/trainer/nn/reference.cc", "ATen/core/Tensor.h"),
            ("services/trainer/kernels/gemm.cc", "dnnl.hpp")]
    for name, include in bad:
        assert list(violations(name, [f'#include "{include}"'])), (name, include)
    for name, include in good:
        assert not list(violations(name, [f"#include <{include}>"])), (name, include)


def main():
    self_test()
    problems = []
    count = 0
    for path in source_files():
        count += 1
        name = str(path.relative_to(ROOT))
        problems += violations(name, path.read_text(encoding="utf-8").splitlines())
    problems += unlisted_sources()
    print("\n".join(problems))
    print(f"include rules: {count} files, {len(problems)} problems")
    sys.exit(1 if problems or count == 0 else 0)


if __name__ == "__main__":
    main()
