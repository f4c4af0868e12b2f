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
	schemas schemas // the latest answers
	kept    schemas // those that the SDK has kept
}

// schemas are of collections, by the name that was asked for.
type schemas map[string]*schemapb.CollectionSchema

func newInspector(timeout time.Duration, secrets ...string) *inspector {
	return &inspector{timeout: timeout, secrets: secrets, schemas: schemas{}, kept: schemas{}}
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
		err = ended(bounded, in.masked(err))
	}
	if abandon, ok := ctx.Value(abandonKey{}).(context.CancelCauseFunc); ok && err != nil && name == "GetFlushState" {
		abandon(err)
	}
	return err
}

// masked is an error of the transport without the secrets that it repeats.
func (in *inspector) masked(err error) error {
	st := status.Convert(err)
	if text := secret.Mask(st.Message(), in.secrets...); text != st.Message() {
		return status.Error(st.Code(), text)
	}
	return err
}

// schema returns what is known of a collection, or nil.
func (in *inspector) schema(coll string) *schemapb.CollectionSchema {
	in.mu.RLock()
	defer in.mu.RUnlock()
	return in.schemas[coll]
}

// keptBySDK returns the schema that the SDK goes by, or nil if it will ask.
func (in *inspector) keptBySDK(coll string) *schemapb.CollectionSchema {
	in.mu.RLock()
	defer in.mu.RUnlock()
	return in.kept[coll]
}

func (in *inspector) learn(coll string, schema *schemapb.CollectionSchema, ours bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.schemas[coll] = schema
	if !ours {
		in.kept[coll] = schema
	}
}

func (in *inspector) forget(coll string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	delete(in.schemas, coll)
	delete(in.kept, coll)
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

// oursKey marks the inspector's own requests in a context.
type oursKey struct{}

// check holds a request against what is known of its collection, and where it
// does not fit, against what the server says of it now: aliases move and
// collections are made again, and nobody tells this client.
func (in *inspector) check(ctx context.Context, name string, req any, cc *grpc.ClientConn) error {
	err := in.checkRequest(ctx, req)
	if r, ok := req.(interface{ GetCollectionName() string }); ok && err != nil {
		again := &milvuspb.DescribeCollectionRequest{CollectionName: r.GetCollectionName()}
		// note reads the answer, of which the SDK does not hear
		ours := context.WithValue(ctx, oursKey{}, true)
		if _, err := milvuspb.NewMilvusServiceClient(cc).DescribeCollection(ours, again); err != nil {
			return err
		}
		err = in.checkRequest(ctx, req)
	}
	if err != nil {
		return &ArgumentError{Op: name, Reason: err.Error()}
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
		e := serverError(name, st)
		e.Reason = secret.Mask(e.Reason, in.secrets...)
		return e
	}
	in.note(ctx, req, reply)
	if err := checkShape(reply); err != nil {
		return &ContractError{Op: name, Reason: err.Error()}
	}
	return nil
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

// note remembers and forgets schemas.
func (in *inspector) note(ctx context.Context, req, reply any) {
	switch req := req.(type) {
	case *milvuspb.DescribeCollectionRequest:
		if r, ok := reply.(*milvuspb.DescribeCollectionResponse); ok {
			in.learn(req.GetCollectionName(), r.GetSchema(), ctx.Value(oursKey{}) != nil)
		}
	case *milvuspb.DropCollectionRequest:
		in.forget(req.GetCollectionName())
	}
}

func checkShape(reply any) error {
	switch r := reply.(type) {
	case *milvuspb.SearchResults:
		return checkResults(r.GetResults())
	case *milvuspb.QueryResults:
		return checkFieldData(r.GetFieldsData(), -1)
	case *milvuspb.DescribeCollectionResponse:
		if r.GetSchema() == nil {
			return errors.New("it has no schema")
		}
	}
	return nil
}

func checkResults(r *schemapb.SearchResultData) error {
	if int(r.GetNumQueries()) != len(r.GetTopks()) {
		return fmt.Errorf("%d queries, %d counts", r.GetNumQueries(), len(r.GetTopks()))
	}
	var rows int64
	for _, k := range r.GetTopks() {
		if k < 0 {
			return fmt.Errorf("a count of %d rows", k)
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
	return checkFieldData(r.GetFieldsData(), int(rows))
}
