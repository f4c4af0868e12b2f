"""The rival of BenchmarkIngest: LlamaIndex's IngestionPipeline over the same files, model server, Milvus and S3.

Needs llama-index-core, llama-index-vector-stores-milvus, llama-index-embeddings-openai-like, boto3, beautifulsoup4.
Arguments: folder, model URL, Milvus URI, collection, S3 endpoint, bucket. Credentials come from AWS_*.
Prints one JSON object: documents, chunks, seconds, peak memory in bytes.
"""

import json, pathlib, resource, sys, time

import boto3
from bs4 import BeautifulSoup
from llama_index.core import Document
from llama_index.core.ingestion import IngestionPipeline
from llama_index.core.node_parser import SentenceSplitter
from llama_index.embeddings.openai_like import OpenAILikeEmbedding
from llama_index.vector_stores.milvus import MilvusVectorStore

folder, model, milvus, collection, endpoint, bucket = sys.argv[1:]
start = time.time()
s3 = boto3.client("s3", endpoint_url=endpoint)
s3.create_bucket(Bucket=bucket)
documents = []
for page in sorted(pathlib.Path(folder).rglob("*.html")):
    content = page.read_bytes()
    s3.put_object(Bucket=bucket, Key=str(page.relative_to(folder)), Body=content)
    text = BeautifulSoup(content, "html.parser").get_text("\n", strip=True)
    documents.append(Document(text=text, id_=str(page.relative_to(folder))))
store = MilvusVectorStore(uri=milvus, collection_name=collection, dim=256, overwrite=False, similarity_metric="COSINE")
pipeline = IngestionPipeline(
    transformations=[
        SentenceSplitter(chunk_size=256, chunk_overlap=32),
        OpenAILikeEmbedding(model_name="penstock-static-256-v1", api_base=model, api_key="none", embed_batch_size=64),
    ],
    vector_store=store,
)
nodes = pipeline.run(documents=documents)
print(json.dumps({
    "documents": len(documents), "chunks": len(nodes), "seconds": time.time() - start,
    "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
}))
