"""Fits the token table to the transformer's vectors of passages: min |A T - Y|^2 + lam |T - T0|^2.

    python fit.py --model FOLDER --tokens tok384.npy --passages passages.txt --out static256.npz

A holds, for each passage, the mean over its tokens; Y the transformer's vectors, half-whitened in 256 dimensions;
T0 the vectors of single tokens in the same space, weighted down by how frequent they are. Conjugate gradients, on
all dimensions at once. passages.txt has one passage per line, already cut to 320 characters.
"""

import argparse
import pathlib

import numpy as np
import scipy.sparse as sparse
from tokenizers import Tokenizer

from distill import TOKENS, Transformer

DIMENSIONS, WHITENING, LAMBDA, SIF, MAX_TOKENS, STEPS = 256, 0.5, 1e-3, 1e-3, 72, 40
SKIPPED = (100, 101, 102)  # [UNK] [CLS] [SEP]


def passage_vectors(model, tokenizer, passages, batch=64):
    """Mean-pooled vectors of length one. Batches hold passages of like length."""
    encoded = tokenizer.encode_batch(passages)
    order = np.argsort([len(e.ids) for e in encoded])
    out = np.zeros((len(passages), 384), np.float32)
    for rows in np.array_split(order, max(1, len(order) // batch)):
        width = max(len(encoded[i].ids) for i in rows)
        ids, mask = np.zeros((len(rows), width), int), np.zeros((len(rows), width), np.float32)
        for r, i in enumerate(rows):
            ids[r, : len(encoded[i].ids)], mask[r, : len(encoded[i].ids)] = encoded[i].ids, 1
        v = (model(ids, mask) * mask[..., None]).sum(1) / mask.sum(1, keepdims=True)
        out[rows] = v / np.linalg.norm(v, axis=1, keepdims=True)
    return out


def token_means(tokenizer, passages):
    """The sparse matrix A (passages, tokens), and how often each token occurs."""
    rows, cols, values, counts = [], [], [], np.zeros(TOKENS)
    for r, e in enumerate(tokenizer.encode_batch(passages, add_special_tokens=False)):
        ids = [t for t in e.ids if t not in SKIPPED]
        np.add.at(counts, ids, 1)
        rows += [r] * len(ids)
        cols += ids
        values += [1 / len(ids)] * len(ids)
    return sparse.csr_matrix((values, (rows, cols)), shape=(len(passages), TOKENS), dtype=np.float32), counts


def solve(a, target, start):
    """start + x with (A'A + lam) x = A'(target - A start)."""
    residual = a.T @ (target - a @ start)
    x, direction, squares = np.zeros_like(residual), residual.copy(), (residual * residual).sum(0)
    for _ in range(STEPS):
        image = a.T @ (a @ direction) + LAMBDA * direction
        step = squares / np.maximum((direction * image).sum(0), 1e-20)
        x += step * direction
        residual -= step * image
        new = (residual * residual).sum(0)
        direction = residual + new / np.maximum(squares, 1e-30) * direction
        squares = new
    return start + x


def fit(tokens, a, counts, vectors):
    centred = vectors - vectors.mean(0)
    _, s, vt = np.linalg.svd(centred, full_matrices=False)
    basis = vt[:DIMENSIONS].T / (s[:DIMENSIONS] / s[0]) ** WHITENING
    share = (counts + 0.5) / (counts.sum() + 0.5 * TOKENS)
    start = ((tokens - tokens.mean(0)) @ basis) * (SIF / (SIF + share))[:, None]
    target, image = centred @ basis, a @ start
    start *= (image * target).sum() / (image * image).sum()
    return solve(a, target, start)


def quantise(table):
    scale = np.abs(table).max(1, keepdims=True) / 127
    scale[scale == 0] = 1
    return np.round(table / scale).astype(np.int8), scale.astype(np.float32)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("model", "tokens", "passages", "out"):
        p.add_argument("--" + name, required=True)
    a = p.parse_args()
    tokenizer = Tokenizer.from_file(str(pathlib.Path(a.model) / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(MAX_TOKENS)
    passages = pathlib.Path(a.passages).read_text().splitlines()
    vectors = passage_vectors(Transformer(a.model), tokenizer, passages)
    means, counts = token_means(tokenizer, passages)
    table, scale = quantise(fit(np.load(a.tokens), means, counts, vectors))
    np.savez_compressed(a.out, table=table, scale=scale)


if __name__ == "__main__":
    main()
