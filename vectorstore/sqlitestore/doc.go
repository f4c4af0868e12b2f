// Package sqlitestore is a vector store in one SQLite file: nearest neighbours
// by sqlite-vec, full-text search by FTS5, no server, no cgo.
//
// A [Store] has the methods of the Milvus SDK's client that a retrieval
// pipeline needs, with the SDK's own names and types, so that the same code
// runs on a file and on a cluster:
//
//	st, err := sqlitestore.Open("rows.db")
//	err = st.CreateCollection(ctx, schema, entity.DefaultShardNumber)
//	err = st.CreateIndex(ctx, "docs", "vector", index, false)
//	err = st.LoadCollection(ctx, "docs", false)
//	_, err = st.Upsert(ctx, "docs", "", ids, texts, vectors)
//	found, err := st.Search(ctx, "docs", nil, `doc == "a"`, fields, query, "vector", entity.COSINE, 10, param)
//
// # Collections
//
// A collection has a primary key of type VARCHAR or INT64 that the caller sets,
// one FLOAT_VECTOR, and any number of BOOL, INT8 to INT64, FLOAT, DOUBLE,
// VARCHAR and JSON fields. The VARCHAR fields named "heading" and "text" are
// indexed for [Store.SearchText]; a field named "doc" gets an index for
// equality, and [Store.CreateIndex] adds one to any other scalar field.
//
// The metric is COSINE (the score is the similarity, higher is better) or L2
// (the score is the squared distance, lower is better), as in Milvus. Search is
// exact. Partitions, dynamic fields and generated keys are not supported;
// requesting one is an invalid argument.
//
// # Filters
//
// The store supports this part of Milvus's expression language:
//
//	field == literal   field != literal
//	field in [literal, …]   field not in [literal, …]
//	json["key"] == literal   json["key"] != literal
//	primary_key > literal
//	term and term   (term)   and "" for every row
//
// Anything else is refused as an invalid argument, with the position of the
// error.
//
// # Consistency and durability
//
// One call is one transaction: after a crash it has either happened or not.
// Readers see every write that returned before they began, at any consistency
// level. The file is in WAL mode with synchronous=NORMAL: a power cut may lose
// the last calls, but never part of one; [Store.Flush] moves written data into
// the main file.
//
// # Deletion
//
// A deleted row is not found any more, but its bytes stay in free parts of the
// file, in the full-text index and in the log. [Store.Purge] removes them, also
// those of rows that earlier versions deleted.
//
// # Errors
//
// Errors are [*Error] and carry a gRPC status code, as the SDK's do:
// google.golang.org/grpc/status.Code(err) returns InvalidArgument, NotFound,
// AlreadyExists, FailedPrecondition, Unavailable (another process holds the
// file), ResourceExhausted (the disk is full) or DataLoss (the file is
// damaged).
//
// A Store is safe for concurrent use, also by several processes on one machine;
// writers take turns. A file on a network volume is refused, since its locks
// are unreliable.
package sqlitestore
