#!/usr/bin/env python3
"""Writes the files of this folder's tests into files/. Needs pyarrow (tools/setup_arrow.sh)."""
import base64
import datetime
import decimal
import pathlib
import struct

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq

FOLDER = pathlib.Path(__file__).parent / "files"
PICTURE = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ"
                           "/pLvAAAAAElFTkSuQmCC")

# Two frames at 8 kHz: a half, and zero.
SOUND = struct.pack("<4sI8sIHHIIHH4sI2h", b"RIFF", 40, b"WAVEfmt ", 16, 1, 1, 8000, 16000, 2, 16, b"data", 4, 16384, 0)


def main():
    day = datetime.date(2024, 2, 29)
    chat = [{"role": "user", "content": "Hi \"you\"\n"}, {"role": "assistant", "content": None}]
    flat = pa.table({
        "i": pa.array([1, -2, 3], "int8"), "u": pa.array([1, 2, 2**64 - 1], "uint64"),
        "h": pa.array([1, 2, 3], "int32"),
        "f": pa.array([0.5, 1.5, -2.5], "float32"), "b": [True, False, True],
        "d": pa.array([decimal.Decimal(text) for text in ("1.25", "-0.01", "99.99")], pa.decimal128(9, 2)),
        "day": [day] * 3, "gap": pa.array([1, None, 3], "int64"), "name": ["x", "y", "x"], "text": ["one", None, "é"],
        "c": pa.array(["p", "q", "p"]).dictionary_encode(), "number": ["1", "2.5", "3"]})
    nested = pa.table({
        "v": [[1, 2], [3, 4], [5, 6]], "m": [[[1.5], [2.5]]] * 3, "r": [[1], [2, 3], []], "hole": [[1], [None], [2]],
        "p": [{"x": 1, "y": {"z": "a"}}, {"x": 2, "y": {"z": "b"}}, {"x": 3, "y": {"z": "a"}}],
        "messages": [chat, [], None], "map": pa.array([[("a", 1)], [], [("b", 2)]], pa.map_(pa.string(), pa.int32())),
        "image": [{"bytes": PICTURE, "path": "1.png"}, {"bytes": PICTURE, "path": None},
                  {"bytes": None, "path": "3.png"}],
        "label": [0, 1, 1]})
    features = b'{"info":{"features":{"label":{"names":["cat","dog"],"_type":"ClassLabel"}}}}'
    nested = nested.replace_schema_metadata({"huggingface": features})
    pq.write_table(flat, FOLDER / "flat.parquet", row_group_size=2, compression="zstd")
    pq.write_table(nested, FOLDER / "nested.parquet", compression="snappy", use_dictionary=False)
    sounds = pa.table({"audio": [{"bytes": SOUND, "path": "1.wav"}, {"bytes": None, "path": "2.wav"}], "label": [0, 1]})
    pq.write_table(sounds, FOLDER / "sounds.parquet")
    pa.feather.write_feather(flat, FOLDER / "flat.feather", compression="lz4", chunksize=2)
    with pa.ipc.new_stream(str(FOLDER / "nested.arrow"), nested.schema) as writer:
        writer.write_table(nested, max_chunksize=2)


if __name__ == "__main__":
    main()
