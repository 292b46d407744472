#!/usr/bin/env python3
"""Compares the reading of Parquet and Arrow files with pyarrow's.

    tools/parquet_check.py BUILD FILE...          checks these files
    tools/parquet_check.py BUILD --odd FOLDER     writes files by pyarrow, polars and duckdb, and checks them

Needs the target arrow_values of the build folder, and PyPI's pyarrow and numpy, for --odd also polars and duckdb. Every
column must have pyarrow's values or be refused in one line. Prints a line per file and per refusal.
"""
import argparse
import datetime
import decimal
import json
import math
import pathlib
import subprocess
import sys
import tempfile
import uuid

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet

DTYPES = {"f32": "f4", "f64": "f8", "f16": "f2", "i8": "i1", "i16": "i2", "i32": "i4", "i64": "i8", "u8": "u1",
          "u16": "u2", "u32": "u4", "u64": "u8", "bool": "?"}
TIMES = (pa.types.is_temporal, pa.types.is_duration)


def read_with_pyarrow(path):
    if path.suffix == ".parquet":
        return pa.parquet.read_table(path)
    with pa.OSFile(str(path)) as file:
        if file.read(6) == b"ARROW1":
            return pa.ipc.open_file(str(path)).read_all()
    with pa.OSFile(str(path)) as file:
        return pa.ipc.open_stream(file).read_all()


def list_columns(table):
    """Returns the columns by name, with those of structs."""
    columns = {}

    def add(name, column):
        is_file = pa.types.is_struct(column.type) and {f.name for f in column.type} == {"bytes", "path"}
        columns.setdefault(name, column)
        if pa.types.is_struct(column.type) and not is_file:
            for field, child in zip(column.type, column.flatten()):
                add(f"{name}.{field.name}", child)

    for name, column in zip(table.column_names, table.columns):
        add(name, column)
    return columns


def to_numbers(column, dtype, shape):
    kind = column.type
    while pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        kind = kind.value_type
    if any(test(kind) for test in TIMES) and not shape:
        width = pa.int32() if kind.bit_width == 32 else pa.int64()
        return np.array(column.cast(width).to_pylist(), dtype)
    values = column.to_pylist()
    if pa.types.is_decimal(kind):
        values = [float(v) for v in values]
    return np.array(values, dtype).reshape([len(values), *shape])


def plain(value):
    """Returns a value of pyarrow as json.loads returns it."""
    if isinstance(value, dict):
        return {key: plain(v) for key, v in value.items()}
    if isinstance(value, list):
        return [plain(v) for v in value]
    if isinstance(value, tuple):
        return [plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def same_json(text, value, kind):
    if pa.types.is_map(kind) and value is not None:
        value = dict(value) if pa.types.is_string(kind.key_type) else [list(pair) for pair in value]
    if value is None:
        return text == ""
    if isinstance(value, (datetime.date, datetime.time, datetime.timedelta)):
        return text != ""
    try:
        found = json.loads(text)
    except json.JSONDecodeError:
        return False
    return found == plain(value) or abstract(found) == abstract(plain(value))


def abstract(value):
    """Replaces what JSON has no type for, and pairs of maps, by what both sides agree on."""
    if isinstance(value, dict):
        return sorted((str(k), abstract(v)) for k, v in value.items())
    if isinstance(value, list):
        pairs = all(isinstance(v, list) and len(v) == 2 and isinstance(v[0], str) for v in value) and value
        return sorted((k, abstract(v)) for k, v in value) if pairs else [abstract(v) for v in value]
    if isinstance(value, (bytes, datetime.date, datetime.time, datetime.timedelta)) or isinstance(value, str):
        return "text"
    if isinstance(value, decimal.Decimal):
        value = float(value)
    return value if value is None or isinstance(value, bool) else str(np.float32(value))


def compare(line, column, folder, c):
    """Returns "" or how a column differs."""
    if line["problem"]:
        return ""
    if line["text"]:
        texts = json.loads((folder / f"{c}.json").read_text())
        kind = column.type
        if any(test(kind) for test in TIMES) and getattr(kind, "unit", "") == "ns":
            return ""  # Python has no type for it
        values = column.to_pylist()
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            same = texts == [v or "" for v in values]
        elif values and isinstance(next((v for v in values if v is not None), None),
                                     (str, bytes, uuid.UUID)):
            return ""
        else:
            same = all(same_json(t, v, column.type) for t, v in zip(texts, values))
        return "" if same and len(texts) == len(values) else "texts differ"
    dtype = DTYPES[line["dtype"]]
    found = np.fromfile(folder / f"{c}.bin", dtype).reshape([len(column), *line["shape"]])
    if line["classes"]:
        names = [None if v is None else v.decode() if isinstance(v, bytes) else str(v) for v in column.to_pylist()]
        return "" if [line["classes"][i] for i in found] == names else "classes differ"
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_dictionary(kind):
        expected = np.array([float(v) for v in column.to_pylist()], dtype)
    else:
        expected = to_numbers(column, dtype, line["shape"])
    return "" if np.array_equal(found, expected, equal_nan=dtype[0] == "f") else "numbers differ"


def run(build, path, folder, texts):
    command = [build / "bin/arrow_values", path, folder, *texts]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode < 0 or done.returncode > 1:
        raise RuntimeError(f"ended with {done.returncode}: {done.stderr[-300:]}")
    if done.returncode == 1:
        return None, done.stderr
    return [json.loads(text) for text in done.stdout.splitlines()], ""


def check_file(build, path):
    """Returns what is wrong, and how many columns were equal and refused."""
    errors, equal, refused = [], 0, {}
    try:
        table = read_with_pyarrow(path)
    except Exception as error:  # pylint: disable=broad-except
        table = error
    for pass_texts in (False, True):
        columns = {} if isinstance(table, Exception) else list_columns(table)
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            lines, message = run(build, path, folder, columns if pass_texts else [])
            if lines is None:
                if message.count("\n") != 1:
                    errors.append(f"not one line: {message!r}")
                refused["file"] = message.strip()
                continue
            for c, line in enumerate(lines):
                if line["problem"]:
                    refused[line["name"] + (" as text" if pass_texts else "")] = line["problem"]
                if "\n" in line["problem"]:
                    errors.append(f"not one line: {line['problem']!r}")
                if isinstance(table, Exception):
                    continue
                if line["name"] in columns:
                    wrong = compare(line, columns[line["name"]], folder, c)
                    errors += [f"{line['name']}{' as text' if pass_texts else ''}: {wrong}"] if wrong else []
                    equal += not wrong and not line["problem"]
    return errors, equal, refused


def write_odd(folder):
    """Writes files with unusual types."""
    import duckdb
    import polars as pl
    from decimal import Decimal
    folder.mkdir(parents=True, exist_ok=True)
    day, moment = datetime.date(2024, 2, 29), datetime.datetime(2024, 2, 29, 12, 30, 15, 123456)
    chat = [[{"role": "user", "content": "Hé \"you\"\n"}, {"role": "assistant", "content": "ok 🎉"}]] * 3
    tables = {
        "ints": {k: pa.array([0, 1, 100], k) for k in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32",
                                                       "uint64")},
        "edges": {"i": pa.array([-2**63, 2**63 - 1, 0], "int64"), "u": pa.array([2**64 - 1, 0, 1], "uint64")},
        "floats": {"h": pa.array(np.array([1.5, -2, 65504], "f2")), "f": pa.array([1e-45, 3e38, -0.0], "float32"),
                   "d": pa.array([1e-320, 1.7e308, 0.1])},
        "decimals": {"a": pa.array([Decimal("1.23"), Decimal("-99999.99"), Decimal("0.01")], pa.decimal128(9, 2)),
                     "b": pa.array([Decimal("12345678901234567890123456789.123")] * 3, pa.decimal256(50, 3))},
        "times": {"d": pa.array([day] * 3), "t": pa.array([moment] * 3, pa.timestamp("us")),
                  "z": pa.array([moment] * 3, pa.timestamp("ms", "Europe/Vienna")),
                  "o": pa.array([1, 2, 3], "time32[s]"),
                  "n": pa.array([1, 2, 3], pa.time64("ns")), "u": pa.array([1, 2, 3], pa.duration("ms"))},
        "dictionaries": {"c": pa.array(["a", "b", "a"]).dictionary_encode(),
                         "n": pa.array([5, 6, 5]).dictionary_encode(),
                         "m": pa.array(["x", None, "y"]).dictionary_encode()},
        "texts": {"s": pa.array(["", "é🎉", None]), "l": pa.array(["a", "b", "c"], pa.large_string()),
                  "b": pa.array([b"\x00\xff", b"", b"x"]), "f": pa.array([b"ab", b"cd", b"ef"], pa.binary(2))},
        "lists": {"a": pa.array([[1, 2], [3, 4], [5, 6]]), "b": pa.array([[[1.5], [2.5]]] * 3),
                  "f": pa.array([[1, 2]] * 3, pa.list_(pa.float32(), 2)), "r": pa.array([[1], [2, 3], []]),
                  "n": pa.array([[1, None], [2, 3], [4, 5]]), "l": pa.array([[1], [2], [3]], pa.large_list(pa.int8()))},
        "structs": {"p": pa.array([{"x": 1, "y": {"z": 2.5}}, {"x": 3, "y": {"z": 4.5}}, {"x": 5, "y": {"z": 6.5}}]),
                    "messages": pa.array(chat), "m": pa.array([[("a", 1)], [], [("b", 2), ("c", 3)]],
                                                              pa.map_(pa.string(), pa.int32()))},
        "missing": {"i": pa.array([1, None, 3]), "f": pa.array([1.0, float("nan"), None]),
                    "b": pa.array([True, None, False]),
                    "n": pa.nulls(3), "p": pa.array([{"x": 1}, None, {"x": None}])},
        "flags": {"b": pa.array([True, False, True]), "l": pa.array([[True], [False], [True]])},
    }
    for name, columns in tables.items():
        table = pa.table(columns)
        pa.feather.write_feather(table, folder / f"{name}.feather", compression="zstd")
        with pa.ipc.new_stream(str(folder / f"{name}.arrow"), table.schema) as writer:
            writer.write_table(table, max_chunksize=2)
        for version, codec in (("1.0", "gzip"), ("2.6", "brotli")):
            try:
                pa.parquet.write_table(table, folder / f"{name}-{codec}.parquet", version=version, compression=codec,
                                       row_group_size=2, use_dictionary=codec == "gzip", data_page_version=version)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError, NotImplementedError, ValueError):
                pass
    frame = pl.DataFrame({"i": [1, 2, 3], "s": ["a", "b", None], "c": pl.Series(["x", "y", "x"], dtype=pl.Categorical),
                          "e": pl.Series(["u", "v", "u"], dtype=pl.Enum(["u", "v"])), "l": [[1, 2], [3], []],
                          "a": pl.Series([[1.0, 2.0]] * 3, dtype=pl.Array(pl.Float32, 2)), "d": [day] * 3,
                          "t": [moment] * 3, "u": [datetime.timedelta(seconds=1)] * 3, "st": [{"a": 1, "b": "x"}] * 3,
                          "bin": [b"1", b"2", b"3"], "o": [datetime.time(1, 2, 3)] * 3})
    for codec in ("zstd", "snappy", "lz4", "uncompressed"):
        frame.write_parquet(folder / f"polars-{codec}.parquet", compression=codec)
    frame.write_ipc(folder / "polars.arrow", compression="lz4")
    query = """select i::TINYINT a, i::UBIGINT b, i::DOUBLE c, (i / 7)::DECIMAL(18, 3) d, 's' || i s, i % 2 = 0 f,
        DATE '2024-01-01' + i::INT g, TIMESTAMP '2024-01-01 00:00:01' h, [i, i + 1] l, {'x': i, 'y': 'z'} st,
        MAP {'k': i} m, INTERVAL 1 DAY iv, '\\xAA'::BLOB bl, uuid() u, TIME '01:02:03' t, i::HUGEINT hu,
        CASE WHEN i > 1 THEN i END nu, [[i::FLOAT]] ll, 'one'::ENUM('one', 'two') en from range(100) r(i)"""
    for codec in ("zstd", "snappy", "gzip"):
        for version in ("v1", "v2"):
            duckdb.sql(f"copy ({query}) to '{folder}/duckdb-{codec}-{version}.parquet' "
                       f"(format parquet, codec {codec}, parquet_version {version}, row_group_size 2048)")
    return sorted(path for path in folder.iterdir() if path.suffix in (".parquet", ".arrow", ".feather"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    parser.add_argument("--odd", type=pathlib.Path, metavar="FOLDER")
    args = parser.parse_args()
    failed = 0
    files = write_odd(args.odd) if args.odd else args.files
    for path in files:
        errors, equal, refused = check_file(args.build, path)
        print(f"{'FAILED' if errors else 'ok'} {path.name}: {equal} columns equal, {len(refused)} refused")
        for name, text in refused.items():
            print(f"    {name}: {text}")
        for error in errors:
            print(f"    ERROR {error}")
        failed += bool(errors)
    print(f"{len(files) - failed} of {len(files)} files")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
