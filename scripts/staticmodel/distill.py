"""Token vectors of all-MiniLM-L6-v2: each token goes through the transformer alone, [CLS] token [SEP].

    python distill.py --model FOLDER --out tok384.npy

FOLDER holds model.safetensors and tokenizer.json. Needs numpy, scipy and safetensors; no deep-learning framework.
"""

import argparse
import math
import pathlib

import numpy as np
from safetensors.numpy import load_file
from scipy.special import erf

TOKENS, HEADS, WIDTH, LAYERS, CLS, SEP = 30522, 12, 384, 6, 101, 102


class Transformer:
    """The forward pass of BERT in numpy."""

    def __init__(self, folder):
        weights = load_file(pathlib.Path(folder) / "model.safetensors")
        self.w = {k: v.astype(np.float32) if v.dtype.kind == "f" else v for k, v in weights.items()}

    def norm(self, x, name):
        centred = x - x.mean(-1, keepdims=True)
        return centred / np.sqrt(x.var(-1, keepdims=True) + 1e-12) * self.w[name + ".weight"] + self.w[name + ".bias"]

    def linear(self, x, name):
        return x @ self.w[name + ".weight"].T + self.w[name + ".bias"]

    def attention(self, x, name, bias):
        def heads(part):
            y = self.linear(x, f"{name}.attention.self.{part}")
            return y.reshape(*y.shape[:2], HEADS, WIDTH // HEADS).transpose(0, 2, 1, 3)

        q, k, v = heads("query"), heads("key"), heads("value")
        a = q @ k.transpose(0, 1, 3, 2) / math.sqrt(WIDTH // HEADS) + bias
        a = np.exp(a - a.max(-1, keepdims=True))
        a /= a.sum(-1, keepdims=True)
        mixed = (a @ v).transpose(0, 2, 1, 3).reshape(x.shape)
        return self.norm(self.linear(mixed, f"{name}.attention.output.dense") + x, f"{name}.attention.output.LayerNorm")

    def feed_forward(self, x, name):
        h = self.linear(x, f"{name}.intermediate.dense")
        h = 0.5 * h * (1 + erf(h / math.sqrt(2)))
        return self.norm(self.linear(h, f"{name}.output.dense") + x, f"{name}.output.LayerNorm")

    def __call__(self, ids, mask=None):
        """Outputs (batch, length, 384) for ids (batch, length); mask is 1 for real tokens, 0 for padding."""
        e = "embeddings."
        x = self.w[e + "word_embeddings.weight"][ids] + self.w[e + "position_embeddings.weight"][: ids.shape[1]]
        x = self.norm(x + self.w[e + "token_type_embeddings.weight"][0], e + "LayerNorm")
        bias = 0 if mask is None else (1 - mask)[:, None, None, :] * np.float32(-1e9)
        for layer in range(LAYERS):
            name = f"encoder.layer.{layer}"
            x = self.feed_forward(self.attention(x, name, bias), name)
        return x


def token_vectors(model, batch=1024):
    out = np.zeros((TOKENS, WIDTH), np.float32)
    for start in range(0, TOKENS, batch):
        ids = np.arange(start, min(TOKENS, start + batch))
        out[ids] = model(np.stack([np.full_like(ids, CLS), ids, np.full_like(ids, SEP)], 1)).mean(1)
    return out


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", required=True)
    p.add_argument("--out", required=True)
    a = p.parse_args()
    np.save(a.out, token_vectors(Transformer(a.model)))


if __name__ == "__main__":
    main()
