#!/usr/bin/env python3
"""Compares the reading of Parquet with pyarrow's reading into NumPy: rows per second, and per second of CPU time, which
counts where other programs run; medians of alternating runs.

    tools/bench/vs_pyarrow.py BUILD [--rows N] [--runs N]

Needs the target arrow_values of the build folder, and PyPI's pyarrow and numpy. Both read all columns of the same file,
which the page cache holds: numbers, lists of 16 floats, texts (of which pyarrow makes Python strings, as NumPy needs).
"""
import argparse
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq


def make_tables(rows):
    random = np.random.default_rng(1)
    numbers = {f"f{i}": random.normal(size=rows).astype("f4") for i in range(10)}
    numbers |= {f"d{i}": random.normal(size=rows) for i in range(4)}
    numbers |= {f"i{i}": random.integers(0, 1000, rows) for i in range(6)}
    lists = pa.FixedSizeListArray.from_arrays(pa.array(random.normal(size=rows * 16).astype("f4")), 16)
    words = np.array(["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog"])
    texts = [" ".join(line) for line in words[random.integers(0, len(words), (rows // 4, 20))]]
    return {"numbers": pa.table(numbers), "lists": pa.table({"x": lists.cast(pa.list_(pa.float32()))}),
            "texts": pa.table({"text": texts, "n": np.arange(rows // 4)})}


def read_with_pyarrow(path):
    begin, cpu = time.perf_counter(), time.process_time()
    table = pq.read_table(path)
    for column in table.columns:
        kind = column.type
        if pa.types.is_list(kind):
            np.array(column.combine_chunks().flatten().to_numpy(zero_copy_only=False)).reshape(len(column), -1)
        else:
            column.to_numpy()
    return time.perf_counter() - begin, time.process_time() - cpu


def read_with_onnxtrain(build, path, texts):
    command = [build / "bin/arrow_values", path, "speed", *texts]
    words = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1].split()
    return float(words[0]), float(words[2])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=5)
    args = parser.parse_args()
    slow = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, table in make_tables(args.rows).items():
            path = pathlib.Path(folder) / f"{name}.parquet"
            pq.write_table(table, path, row_group_size=100_000)
            texts = ["text"] if name == "texts" else []
            peer, own = [], []
            for _ in range(args.runs):
                peer.append(read_with_pyarrow(path))
                own.append(read_with_onnxtrain(args.build, path, texts))
            for i, what in enumerate(("", " per second of CPU")):
                own_time, peer_time = (statistics.median(times[i] for times in runs) for runs in (own, peer))
                speeds = [table.num_rows / seconds / 1e6 for seconds in (own_time, peer_time)]
                print(f"{name}: {speeds[0]:.2f} million rows/s{what}, pyarrow {speeds[1]:.2f}: "
                      f"{peer_time / own_time:.2f}", flush=True)
            slow += peer_time < 0.9 * own_time
    sys.exit(slow > 0)


if __name__ == "__main__":
    main()
