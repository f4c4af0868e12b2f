package vectorstore

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/milvus-io/milvus-proto/go-api/v2/commonpb"
	"github.com/milvus-io/milvus-proto/go-api/v2/milvuspb"
	"github.com/milvus-io/milvus-proto/go-api/v2/schemapb"
	"github.com/milvus-io/milvus-sdk-go/v2/client"
	"github.com/milvus-io/milvus-sdk-go/v2/entity"
	"github.com/milvus-io/milvus-sdk-go/v2/merr"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"

	"github.com/penstock-go/penstock/internal/secret"
)

// inspector stands between the SDK and the connection. It knows the schemas
// that the SDK has asked for, checks requests against them, gives each request
// a deadline and reads the status of each reply.
type inspector struct {
	timeout time.Duration
	secrets []string // that are sent, and are not repeated in errors

	mu      sync.RWMutex
	schemas map[string]*schemapb.CollectionSchema // the latest answers, by the name that was asked for
	bySDK   map[string]keptSchema                 // those that the SDK has kept

	lastNumber uint64
}

// keptSchema is a schema that the SDK goes by. Another one has a higher number,
// also where it is the one before last.
type keptSchema struct {
	schema *schemapb.CollectionSchema
	number uint64
}

func newInspector(timeout time.Duration, secrets ...string) *inspector {
	return &inspector{
		timeout: timeout, secrets: secrets,
		schemas: map[string]*schemapb.CollectionSchema{}, bySDK: map[string]keptSchema{},
	}
}

func (in *inspector) intercept(
	ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker,
	opts ...grpc.CallOption,
) error {
	name := path.Base(method)
	in.rewrite(ctx, req)
	if err := in.check(ctx, name, req, cc); err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, in.timeout)
	defer cancel()
	noteSent(ctx, req)
	err := invoke(bounded, method, req, reply, cc, opts...)
	if err == nil {
		err = in.checkReply(ctx, name, req, reply)
	} else {
		err = ended(bounded, in.masked(plainly(err, in.timeout, ctx, bounded)))
	}
	if abandon, ok := ctx.Value(abandonKey{}).(abandon); ok && err != nil && name == "GetFlushState" {
		abandon(err)
	}
	return err
}

// masked is an error without the secrets that it repeats, in its words or its
// details.
func (in *inspector) masked(err error) error {
	if server, ok := err.(*ServerError); ok { //nolint:errorlint // our own
		server.Reason = secret.Mask(server.Reason, in.secrets...)
		return err
	}
	if err == nil {
		return nil
	}
	st := status.Convert(err)
	all := st.Proto().String()
	if secret.Mask(all, in.secrets...) == all {
		return err
	}
	return status.Error(st.Code(), secret.Mask(st.Message(), in.secrets...))
}

// schema returns what is known of a collection, or nil.
func (in *inspector) schema(coll string) *schemapb.CollectionSchema {
	in.mu.RLock()
	defer in.mu.RUnlock()
	return in.schemas[coll]
}

// kept is the number of the schema that the SDK goes by, or 0 if it will ask.
// It may be that of an older one, but not of a newer.
func (in *inspector) kept(coll string) uint64 {
	in.mu.RLock()
	defer in.mu.RUnlock()
	return in.bySDK[coll].number
}

// keep says that the SDK goes by schema.
func (in *inspector) keep(coll string, schema *schemapb.CollectionSchema) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if k := in.bySDK[coll]; k.number == 0 || !sameSchema(k.schema, schema) {
		in.lastNumber++
		in.bySDK[coll] = keptSchema{schema, in.lastNumber}
	}
}

func (in *inspector) learn(coll string, schema *schemapb.CollectionSchema) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.schemas[coll] = schema
}

func (in *inspector) forget(coll string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	delete(in.schemas, coll)
	delete(in.bySDK, coll)
}

// keysKey finds the keys of a Get or DeleteByPks in a context.
type keysKey struct{}

func withKeys(ctx context.Context, ids entity.Column) context.Context {
	return context.WithValue(ctx, keysKey{}, ids)
}

// rewrite escapes what the SDK has put into expressions as it was: the keys of
// Get and DeleteByPks, and the last key of an iterator's page. It asks for the
// consistency that the SDK has no word for.
func (in *inspector) rewrite(ctx context.Context, req any) {
	strengthen(ctx, req)
	switch req := req.(type) {
	case *milvuspb.DeleteRequest:
		req.Expr = escapeKeys(ctx, req.GetExpr())
	case *milvuspb.QueryRequest:
		req.Expr = escapeKeys(ctx, req.GetExpr())
		if expr, ok := ctx.Value(pageKey{}).(string); ok {
			req.Expr = escapePage(expr, in.keyField(req.GetCollectionName()), req.GetExpr())
		}
	}
}

func escapeKeys(ctx context.Context, expr string) string {
	ids, ok := ctx.Value(keysKey{}).(entity.Column)
	if !ok {
		return expr
	}
	keys := textKeys(ids)
	if !awkward(keys) {
		return expr
	}
	tail := strings.TrimPrefix(client.PKs2Expr("", entity.NewColumnVarChar("k", keys)), "k")
	if field, ok := strings.CutSuffix(expr, tail); ok {
		return In(field, keys)
	}
	return expr
}

func (in *inspector) keyField(coll string) string {
	for _, f := range in.schema(coll).GetFields() {
		if f.GetIsPrimaryKey() {
			return f.GetName()
		}
	}
	return ""
}

// pageKey finds an iterator's expression in a context.
type pageKey struct{}

// escapePage quotes the key in `key > "…"`, which the SDK puts after the
// iterator's own expression.
func escapePage(expr, key, sent string) string {
	head := key + ` > "`
	if own := strings.TrimSpace(expr); own != "" {
		head = "(" + own + ") and " + head
	}
	last, ok := strings.CutPrefix(sent, head)
	if !ok {
		return sent
	}
	return strings.TrimSuffix(head, `"`) + Quote(strings.TrimSuffix(last, `"`))
}

// check holds a request against what is known of its collection, and where it
// does not fit, against what the server says of it now: aliases move and
// collections are made again, and nobody tells this client.
func (in *inspector) check(ctx context.Context, name string, req any, cc *grpc.ClientConn) error {
	err := in.checkRequest(ctx, req)
	if r, ok := req.(interface{ GetCollectionName() string }); ok && err != nil {
		again := &milvuspb.DescribeCollectionRequest{CollectionName: r.GetCollectionName()}
		// note reads the answer, of which the SDK does not hear
		if _, err := milvuspb.NewMilvusServiceClient(cc).DescribeCollection(ctx, again); err != nil {
			return err
		}
		err = in.checkRequest(ctx, req)
	}
	if err != nil {
		return &ArgumentError{Op: name, Reason: secret.Mask(err.Error(), in.secrets...)}
	}
	return nil
}

// checkRequest finds what the server would refuse late, or store wrongly.
func (in *inspector) checkRequest(ctx context.Context, req any) error {
	switch req := req.(type) {
	case *milvuspb.InsertRequest:
		return in.checkWrite(ctx, req, false)
	case *milvuspb.UpsertRequest:
		return in.checkWrite(ctx, req, true)
	case *milvuspb.SearchRequest:
		return checkSearch(in.schema(req.GetCollectionName()), req)
	case *milvuspb.HybridSearchRequest:
		for i, r := range req.GetRequests() {
			if err := checkSearch(in.schema(req.GetCollectionName()), r); err != nil {
				return fmt.Errorf("request %d: %w", i, err)
			}
		}
	}
	return checkSize(req)
}

func checkSize(req any) error {
	m, ok := req.(protoadapt.MessageV1)
	if !ok {
		return nil
	}
	if n := proto.Size(protoadapt.MessageV2Of(m)); n > maxMessage {
		return fmt.Errorf("the message has %d bytes, the server takes %d; send fewer rows at a time", n, maxMessage)
	}
	return nil
}

// checkReply turns a reply's status into an error (the SDK looks at the older
// of its two codes only and keeps neither), and finds shapes over which the SDK
// would panic.
func (in *inspector) checkReply(ctx context.Context, name string, req, reply any) error {
	st, has := replyStatus(reply)
	switch {
	case !has:
		return nil
	case st == nil:
		return &ContractError{Op: name, Reason: "it has no status"}
	case !merr.Ok(st):
		return in.masked(serverError(name, st))
	}
	wrong := checkShape(reply)
	if wrong == nil {
		wrong = in.checkPage(ctx, req, reply)
	}
	if wrong != nil {
		return &ContractError{Op: name, Reason: secret.Mask(wrong.Error(), in.secrets...)}
	}
	in.note(ctx, req, reply)
	return in.masked(buildFailure(ctx, name, reply))
}

// buildFailure is that of an index that CreateIndex waits for. The SDK has no
// type for it, so that it would be the caller's mistake.
func buildFailure(ctx context.Context, name string, reply any) error {
	r, ok := reply.(*milvuspb.DescribeIndexResponse)
	if _, waits := ctx.Value(abandonKey{}).(abandon); !ok || !waits {
		return nil
	}
	for _, d := range r.GetIndexDescriptions() {
		if d.GetState() == commonpb.IndexState_Failed {
			reason := "index build failed: " + d.GetIndexStateFailReason()
			return &ServerError{Method: name, Code: unexpected, Reason: reason}
		}
	}
	return nil
}

// checkPage finds a page of an iteration without the key, over which the SDK
// would panic.
func (in *inspector) checkPage(ctx context.Context, req, reply any) error {
	page, ok := reply.(*milvuspb.QueryResults)
	if ctx.Value(pageKey{}) == nil || !ok || len(page.GetFieldsData()) == 0 {
		return nil
	}
	key := in.keyField(req.(*milvuspb.QueryRequest).GetCollectionName())
	for _, f := range page.GetFieldsData() {
		if f.GetFieldName() == key {
			return nil
		}
	}
	return fmt.Errorf("a page without the key, %q", key)
}

func replyStatus(reply any) (*commonpb.Status, bool) {
	switch r := reply.(type) {
	case *commonpb.Status:
		return r, true
	case interface{ GetStatus() *commonpb.Status }:
		return r.GetStatus(), true
	default:
		return nil, false
	}
}

// note remembers and forgets schemas, and keeps the keys of a write.
func (in *inspector) note(ctx context.Context, req, reply any) {
	switch req := req.(type) {
	case *milvuspb.DescribeCollectionRequest:
		if r, ok := reply.(*milvuspb.DescribeCollectionResponse); ok {
			in.learn(req.GetCollectionName(), r.GetSchema())
		}
	case *milvuspb.DropCollectionRequest:
		in.forget(req.GetCollectionName())
	case writeRequest:
		if r, ok := reply.(*milvuspb.MutationResult); ok {
			sendingOf(ctx).ids.Store(r.GetIDs())
		}
	}
}

func checkShape(reply any) error {
	switch r := reply.(type) {
	case *milvuspb.SearchResults:
		return checkResults(r.GetResults())
	case *milvuspb.QueryResults:
		return checkFieldData(r.GetFieldsData(), -1)
	case *milvuspb.ShowPartitionsResponse:
		if ids, names := len(r.GetPartitionIDs()), len(r.GetPartitionNames()); ids != names {
			return fmt.Errorf("%d partitions, %d names", ids, names)
		}
	case *milvuspb.DescribeCollectionResponse:
		return checkDescribed(r.GetSchema())
	}
	return nil
}

func checkDescribed(schema *schemapb.CollectionSchema) error {
	if schema == nil {
		return errors.New("it has no schema")
	}
	for _, f := range schema.GetFields() {
		if f.GetIsPrimaryKey() {
			return nil
		}
	}
	return errors.New("its schema has no primary key")
}

func checkResults(r *schemapb.SearchResultData) error {
	if int(r.GetNumQueries()) != len(r.GetTopks()) {
		return fmt.Errorf("%d queries, %d counts", r.GetNumQueries(), len(r.GetTopks()))
	}
	var rows int64
	for _, k := range r.GetTopks() {
		if k < 0 || k > int64(len(r.GetScores())) {
			return fmt.Errorf("a count of %d rows, and %d scores", k, len(r.GetScores()))
		}
		rows += k
	}
	keys := len(r.GetIds().GetIntId().GetData()) + len(r.GetIds().GetStrId().GetData())
	if rows != int64(len(r.GetScores())) || rows != int64(keys) {
		return fmt.Errorf("%d rows, %d scores, %d keys", rows, len(r.GetScores()), keys)
	}
	if rows == 0 {
		return nil // its fields may be anything
	}
	if groups := r.GetGroupByFieldValue(); groups != nil {
		if err := checkFieldData([]*schemapb.FieldData{groups}, int(rows)); err != nil {
			return err
		}
	}
	return checkFieldData(r.GetFieldsData(), int(rows))
}
