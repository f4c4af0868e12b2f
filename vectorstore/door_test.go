package vectorstore_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/milvus-io/milvus-proto/go-api/v2/commonpb"
	"github.com/milvus-io/milvus-proto/go-api/v2/milvuspb"
	"github.com/milvus-io/milvus-proto/go-api/v2/schemapb"
	"github.com/milvus-io/milvus-sdk-go/v2/client"
	"github.com/milvus-io/milvus-sdk-go/v2/entity"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/testutil"
	"github.com/penstock-go/penstock/vectorstore"
)

var vec = []entity.Vector{entity.FloatVector{1, 0, 0, 0}}

func TestClassifyRowByRow(t *testing.T) {
	s, addr := serve(t)
	c := connect(t, vectorstore.Config{Address: addr})
	milvus := func(code int32, reason string) func() {
		return func() {
			s.reply(
				"Upsert",
				&milvuspb.MutationResult{
					Status: &commonpb.Status{Code: code, ErrorCode: commonpb.ErrorCode_UnexpectedError, Reason: reason},
				},
			)
		}
	}
	legacy := func(code commonpb.ErrorCode) func() {
		return func() {
			s.reply("Upsert", &milvuspb.MutationResult{Status: &commonpb.Status{ErrorCode: code, Reason: "legacy"}})
		}
	}
	transport := func(code codes.Code, msg string) func() {
		return func() { s.fail("Upsert", status.Error(code, msg)) }
	}
	const (
		answer, failure, throttled, denied, ignored = resilience.Success, resilience.Failure, resilience.Throttled,
			resilience.Denied, resilience.Ignored
	)
	for _, tt := range []struct {
		name   string
		script func()
		want   resilience.Outcome
		code   codes.Code
	}{
		{"1 not ready", milvus(1, ""), failure, codes.Unavailable},
		{"2 unavailable", milvus(2, ""), failure, codes.Unavailable},
		{"3 memory", milvus(3, ""), failure, codes.ResourceExhausted},
		{"4 queue full", milvus(4, ""), throttled, codes.ResourceExhausted},
		{"7 disk", milvus(7, ""), failure, codes.ResourceExhausted},
		{"8 rate", milvus(8, ""), throttled, codes.ResourceExhausted},
		{"9 quota", milvus(9, ""), throttled, codes.ResourceExhausted},
		{"100 collection", milvus(100, ""), answer, codes.NotFound},
		{"101 not loaded", milvus(101, ""), ignored, codes.FailedPrecondition},
		{"103 not fully loaded", milvus(103, ""), failure, codes.Unavailable},
		{"202 partition not fully loaded", milvus(202, ""), failure, codes.Unavailable},
		{"700 index", milvus(700, ""), answer, codes.NotFound},
		{"1100 parameter", milvus(1100, ""), ignored, codes.InvalidArgument},
		{"1400 not authenticated", milvus(1400, ""), denied, codes.Unauthenticated},
		{"1401 not permitted", milvus(1401, ""), denied, codes.PermissionDenied},
		{"1700 field", milvus(1700, ""), answer, codes.NotFound},
		{"unknown code", milvus(4242, ""), failure, codes.Internal},
		{"unexpected failure", milvus(65535, "channel not available"), failure, codes.Internal},
		{"1001 disk", milvus(1001, "IO failed: no space left on device"), failure, codes.Internal},
		{
			"1001 JSON", milvus(1001,
				"IO failed: json: cannot unmarshal array into Go value of type map[string]interface {}"),
			ignored, codes.InvalidArgument,
		},
		{
			"unexpected dimension",
			milvus(65535, "fail to Search, QueryNode ID=1, reason=… => vector dimension mismatch: service internal error"), ignored, codes.InvalidArgument,
		},
		{"unexpected JSON", milvus(65535, "cannot set json key to: $meta"), ignored, codes.InvalidArgument},
		{"702 index exists", milvus(702, ""), answer, codes.AlreadyExists},
		{"unexpected answer", milvus(65535, "partition name x not found"), answer, codes.NotFound},
		{"unexpected mistake", milvus(65535, "cannot parse expression: x y"), ignored, codes.InvalidArgument},
		{"legacy rate limit", legacy(commonpb.ErrorCode_RateLimit), throttled, codes.ResourceExhausted},
		{"legacy not ready", legacy(commonpb.ErrorCode_NotReadyServe), failure, codes.Unavailable},
		{"legacy argument", legacy(commonpb.ErrorCode_IllegalArgument), ignored, codes.InvalidArgument},
		{"Unavailable", transport(codes.Unavailable, ""), failure, codes.Unavailable},
		{"Aborted", transport(codes.Aborted, ""), failure, codes.Aborted},
		{"Unknown", transport(codes.Unknown, ""), failure, codes.Unknown},
		{"Internal", transport(codes.Internal, ""), failure, codes.Internal},
		{"DeadlineExceeded", transport(codes.DeadlineExceeded, ""), failure, codes.DeadlineExceeded},
		{"ResourceExhausted", transport(codes.ResourceExhausted, "busy"), throttled, codes.ResourceExhausted},
		{
			"too large", transport(codes.ResourceExhausted, "grpc: received message larger than max (1 vs. 0)"),
			ignored, codes.ResourceExhausted,
		},
		{"invalid UTF-8", transport(codes.Internal, "string field contains invalid UTF-8"), ignored, codes.Internal},
		{"InvalidArgument", transport(codes.InvalidArgument, ""), ignored, codes.InvalidArgument},
		{"NotFound", transport(codes.NotFound, ""), answer, codes.NotFound},
		{"AlreadyExists", transport(codes.AlreadyExists, ""), answer, codes.AlreadyExists},
		{"FailedPrecondition", transport(codes.FailedPrecondition, ""), ignored, codes.FailedPrecondition},
		{"OutOfRange", transport(codes.OutOfRange, ""), ignored, codes.OutOfRange},
		{"Unimplemented", transport(codes.Unimplemented, ""), ignored, codes.Unimplemented},
		{"Unauthenticated", transport(codes.Unauthenticated, ""), denied, codes.Unauthenticated},
		{"PermissionDenied", transport(codes.PermissionDenied, ""), denied, codes.PermissionDenied},
	} {
		tt.script()
		g, b := guard(t)
		_, err := g.Upsert(t.Context(), c, "docs", "", rowsOf("a")...)
		require.Error(t, err, tt.name)
		assert.Equal(t, tt.want, vectorstore.Classify(t.Context(), err).Outcome, tt.name)
		assert.Equal(t, tt.code, status.Code(err), tt.name)
		snap := b.Snapshot()
		counted := map[resilience.Outcome]int64{
			answer:    int64(snap.Successes),
			failure:   int64(snap.Failures),
			throttled: int64(snap.Throttled),
			denied:    int64(snap.Denied),
			ignored:   int64(snap.Ignored),
		}
		assert.EqualValues(t, 1, counted[tt.want], "%s: %+v", tt.name, snap)
	}
}

func TestEachCallIsOneAttempt(t *testing.T) {
	s, addr := serve(t)
	c := connect(t, vectorstore.Config{Address: addr})
	rate := &milvuspb.MutationResult{
		Status: &commonpb.Status{Code: 8, ErrorCode: commonpb.ErrorCode_RateLimit, Reason: "slow down"},
	}
	for i, script := range []func(){
		func() { s.fail("Upsert", status.Error(codes.Unavailable, "down")) },
		func() { s.fail("Upsert", status.Error(codes.ResourceExhausted, "busy")) },
		func() { s.reply("Upsert", rate) },
	} {
		script()
		g, _ := guard(t)
		_, err := g.Upsert(t.Context(), c, "docs", "", rowsOf("a")...)
		require.Error(t, err)
		assert.Equal(t, i+1, s.count("Upsert"), "%v", err)
	}
	assert.Equal(t, 1, s.count("DescribeCollection"), "the schema is asked for once")
	assert.Zero(t, s.count("Connect"), "making a client sends nothing")
}

func TestStatusWithCodeAloneIsAnError(t *testing.T) {
	s, addr := serve(t)
	c := connect(t, vectorstore.Config{Address: addr})
	s.reply(
		"Upsert",
		&milvuspb.MutationResult{
			Status: &commonpb.Status{Code: 1100, Reason: "bad", Retriable: true},
			IDs:    strIDs("a"),
		},
	)
	g, b := guard(t)
	_, err := g.Upsert(t.Context(), c, "docs", "", rowsOf("a")...)
	e := new(vectorstore.ServerError)
	require.ErrorAs(t, err, &e)
	assert.Equal(t, vectorstore.ServerError{Method: "Upsert", Code: 1100, Reason: "bad", Retriable: true}, *e)
	assert.EqualValues(t, 1, b.Snapshot().Ignored)
}

func TestFiveFailuresOpenAndTheSixthIsRefused(t *testing.T) {
	s, addr := serve(t)
	c := connect(t, vectorstore.Config{Address: addr})
	s.fail("Query", status.Error(codes.Internal, "broken"))
	g, b := guard(t)
	for range 5 {
		_, err := g.Query(t.Context(), c, "docs", nil, `id == "a"`, []string{"id"})
		assert.Equal(t, "broken", status.Convert(err).Message(), "the server's own error")
	}
	_, err := g.Query(t.Context(), c, "docs", nil, `id == "a"`, []string{"id"})
	open := new(resilience.OpenError)
	require.ErrorAs(t, err, &open)
	assert.Equal(t, 5, s.count("Query"))
	assert.EqualValues(t, 5, b.Snapshot().Failures)
}

func TestMistakesAreNotSent(t *testing.T) {
	s, addr := serve(t)
	c := connect(t, vectorstore.Config{Address: addr})
	g, b := guard(t)
	nan := rowsOf("a")
	nan[1] = entity.NewColumnFloatVector("vector", 4, [][]float32{{1, 0, 0, float32(math.Inf(1))}})
	ragged := []entity.Column{
		entity.NewColumnVarChar("id", []string{"a", "b"}),
		entity.NewColumnFloatVector("vector", 4, [][]float32{{1, 2, 3}, {1, 2, 3, 4, 5}}),
	}
	for name, cols := range map[string][]entity.Column{
		"not finite": nan, "three and five floats": ragged, "key twice": rowsOf("a", "b", "a"),
		"nine bytes in a key of eight": rowsOf("ééééé"),
		"invalid UTF-8":                rowsOf("\xff"), "uneven": {rowsOf("a")[0], rowsOf("a", "b")[1]}, "none": {},
	} {
		_, err := g.Upsert(t.Context(), c, "docs", "", cols...)
		e := new(vectorstore.ArgumentError)
		assert.ErrorAs(t, err, &e, name)
	}
	_, err := g.Search(
		t.Context(),
		c,
		"docs",
		nil,
		"",
		nil,
		[]entity.Vector{entity.FloatVector{1}},
		"vector",
		entity.COSINE,
		1,
		nil,
	)
	assert.Equal(t, codes.InvalidArgument, status.Code(err), "dimensions of a query: %v", err)
	assert.Equal(t, codes.InvalidArgument, status.Code(g.Delete(t.Context(), c, "docs", "", " ")))
	assert.Equal(
		t,
		codes.InvalidArgument,
		status.Code(g.DeleteByPks(t.Context(), c, "docs", "", entity.NewColumnVarChar("id", nil))),
	)
	assert.Equal(t, codes.InvalidArgument, status.Code(g.CreateIndex(t.Context(), c, "docs", "vector", nil, true)))
	assert.Equal(t, codes.InvalidArgument, status.Code(g.CreateCollection(t.Context(), c, nil, 1)))
	_, err = g.Get(t.Context(), c, "docs", entity.NewColumnVarChar("", []string{"a"}))
	assert.Equal(t, codes.InvalidArgument, status.Code(err), "keys without a name")
	for _, method := range []string{"Upsert", "Search", "Delete", "CreateIndex", "CreateCollection", "Query"} {
		assert.Zero(t, s.count(method), method)
	}
	assert.Zero(t, b.Snapshot().Failures)
}

func TestMessageOver64MBIsNotSent(t *testing.T) {
	s, addr := serve(t)
	wide := docs()
	wide.Fields[1].WithDim(4096)
	s.reply("DescribeCollection", &milvuspb.DescribeCollectionResponse{Status: ok(), Schema: wide.ProtoMessage()})
	c := connect(t, vectorstore.Config{Address: addr})
	ids, vectors := make([]string, 4200), make([][]float32, 4200)
	v := make([]float32, 4096)
	for i := range ids {
		ids[i], vectors[i] = strconv.Itoa(i), v
	}
	g, _ := guard(t)
	_, err := g.Upsert(
		t.Context(),
		c,
		"docs",
		"",
		entity.NewColumnVarChar("id", ids),
		entity.NewColumnFloatVector("vector", 4096, vectors),
	)
	assert.Equal(t, codes.InvalidArgument, status.Code(err))
	assert.ErrorContains(t, err, "fewer")
	assert.Zero(t, s.count("Upsert"))
}

func TestWrongAnswersAreContractErrors(t *testing.T) {
	s, addr := serve(t)
	c := connect(t, vectorstore.Config{Address: addr})
	search := func(reply *milvuspb.SearchResults) func(vectorstore.Guard) error {
		return func(g vectorstore.Guard) error {
			s.reply("Search", reply)
			_, err := g.Search(t.Context(), c, "docs", nil, "", nil, vec, "vector", entity.COSINE, 2, nil)
			return err
		}
	}
	nan := float32(math.NaN())
	for name, run := range map[string]func(vectorstore.Guard) error{
		"fewer keys than rows": func(g vectorstore.Guard) error {
			s.reply("Upsert", mutation("a"))
			_, err := g.Upsert(t.Context(), c, "docs", "", rowsOf("a", "b")...)
			return err
		},
		"no status": func(g vectorstore.Guard) error {
			s.reply("HasCollection", &milvuspb.BoolResponse{Value: true})
			_, err := g.HasCollection(t.Context(), c, "docs")
			return err
		},
		"two results for one query":       search(found([]int64{1, 1}, []float32{1, 1}, "a", "b")),
		"no results":                      search(found(nil, nil)),
		"more rows than asked for":        search(found([]int64{3}, []float32{3, 2, 1}, "a", "b", "c")),
		"scores missing (the SDK panics)": search(found([]int64{2}, []float32{1}, "a", "b")),
		"keys missing":                    search(found([]int64{2}, []float32{2, 1}, "a")),
		"counts missing (the SDK panics)": search(
			&milvuspb.SearchResults{Status: ok(), Results: &schemapb.SearchResultData{NumQueries: 1}}),
		"negative count (the SDK panics)": search(found([]int64{-1}, nil)),
		"score that is not a number":      search(found([]int64{1}, []float32{nan}, "a")),
	} {
		g, b := guard(t)
		err := run(g)
		e := new(vectorstore.ContractError)
		assert.ErrorAs(t, err, &e, name)
		assert.EqualValues(t, 1, b.Snapshot().Failures, name)
	}
}

func TestHybridSearch(t *testing.T) {
	s, addr := serve(t)
	c := connect(t, vectorstore.Config{Address: addr})
	s.reply("HybridSearch", found([]int64{2}, []float32{0.9, 0.5}, "a", "b"))
	g, _ := guard(t)
	sp, err := entity.NewIndexFlatSearchParam()
	require.NoError(t, err)
	got, err := g.HybridSearch(t.Context(), c, "docs", nil, 2, nil, client.NewRRFReranker(),
		[]*client.ANNSearchRequest{client.NewANNSearchRequest("vector", entity.COSINE, "", vec, sp, 2)})
	require.NoError(t, err)
	require.Len(t, got, 1)
	assert.Equal(t, []string{"a", "b"}, got[0].IDs.(*entity.ColumnVarChar).Data())
	_, err = g.HybridSearch(t.Context(), c, "docs", nil, 2, nil, nil, nil)
	assert.Equal(t, codes.InvalidArgument, status.Code(err))
}

func TestCallersCancellationIsIgnoredAndTimeoutsCount(t *testing.T) {
	s, addr := serve(t)
	hang := make(chan struct{})
	t.Cleanup(func() { close(hang) })
	arrived := make(chan struct{}, 9)
	s.on("Query", func(ctx context.Context, _ any) (any, error) {
		arrived <- struct{}{}
		select {
		case <-ctx.Done():
		case <-hang:
		}
		return nil, ctx.Err()
	})
	g, b := guard(t)
	query := func(ctx context.Context, c client.Client) error {
		_, err := g.Query(ctx, c, "docs", nil, `id == "a"`, []string{"id"})
		return err
	}
	c := connect(t, vectorstore.Config{Address: addr})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-arrived; cancel() }()
	assert.Equal(t, codes.Canceled, status.Code(query(ctx, c)))
	assert.EqualValues(t, 1, b.Snapshot().Ignored)

	ctx, cancel = context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	assert.Equal(t, codes.DeadlineExceeded, status.Code(query(ctx, c)), "the caller's deadline")
	assert.EqualValues(t, 1, b.Snapshot().Failures)

	quick := connect(t, vectorstore.Config{Address: addr, CallTimeout: 30 * time.Millisecond})
	assert.Equal(t, codes.DeadlineExceeded, status.Code(query(t.Context(), quick)), "the client's own timeout")
	assert.EqualValues(t, 2, b.Snapshot().Failures)
}

func TestFlushEndsAtTheFirstErrorOfItsWait(t *testing.T) {
	s, addr := serve(t)
	c := connect(t, vectorstore.Config{Address: addr})
	s.reply(
		"Flush",
		&milvuspb.FlushResponse{Status: ok(), CollSegIDs: map[string]*schemapb.LongArray{"docs": {Data: []int64{1}}}},
	)
	s.fail("GetFlushState", status.Error(codes.Unavailable, "went away"))
	g, b := guard(t)
	err := g.Flush(t.Context(), c, "docs", false)
	assert.Equal(t, codes.Unavailable, status.Code(err), "%v", err)
	assert.Equal(t, 1, s.count("GetFlushState"))
	assert.EqualValues(t, 1, b.Snapshot().Failures)
	require.NoError(t, g.Flush(t.Context(), c, "docs", true), "asynchronous")
}

func TestKeysAreEscapedOnTheWire(t *testing.T) {
	s, addr := serve(t)
	c := connect(t, vectorstore.Config{Address: addr})
	var sent []string
	s.on("Delete", func(_ context.Context, req any) (any, error) {
		sent = append(sent, req.(*milvuspb.DeleteRequest).GetExpr())
		return mutation(), nil
	})
	s.on("Query", func(_ context.Context, req any) (any, error) {
		sent = append(sent, req.(*milvuspb.QueryRequest).GetExpr())
		return &milvuspb.QueryResults{Status: ok()}, nil
	})
	g, _ := guard(t)
	evil := entity.NewColumnVarChar("id", []string{`"] or id != ["`, "plain"})
	require.NoError(t, g.DeleteByPks(t.Context(), c, "docs", "", evil))
	require.NoError(t, g.DeleteByPks(t.Context(), c, "docs", "", entity.NewColumnVarChar("", []string{`\`})))
	_, _ = g.Get(t.Context(), c, "docs", evil, client.GetWithOutputFields())
	want := `id in ["\"] or id != [\"","plain"]`
	assert.Equal(t, []string{want, `id in ["\\"]`, want}, sent)

	bare, err := client.NewClient(t.Context(), client.Config{Address: addr, DisableConn: true})
	require.NoError(t, err)
	defer bare.Close()
	assert.Equal(
		t,
		codes.InvalidArgument,
		status.Code(g.DeleteByPks(t.Context(), bare, "docs", "", evil)),
		"a client that cannot escape",
	)
}

func TestIteratorEscapesTheKeyItGoesOnFrom(t *testing.T) {
	s, addr := serve(t)
	c := connect(t, vectorstore.Config{Address: addr})
	var sent []string
	pages := [][]string{{"a", `b"`}, {"c"}, nil}
	s.on("Query", func(_ context.Context, req any) (any, error) {
		page := pages[min(len(sent), 2)]
		sent = append(sent, req.(*milvuspb.QueryRequest).GetExpr())
		return &milvuspb.QueryResults{
			Status:     ok(),
			FieldsData: []*schemapb.FieldData{entity.NewColumnVarChar("id", page).FieldData()},
		}, nil
	})
	g, b := guard(t)
	it, err := g.QueryIterator(
		t.Context(),
		c,
		client.NewQueryIteratorOption("docs").WithExpr(`id != "x"`).WithOutputFields("id").WithBatchSize(2),
	)
	require.NoError(t, err)
	var got []string
	for {
		set, err := it.Next(t.Context())
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		got = append(got, set.GetColumn("id").(*entity.ColumnVarChar).Data()...)
	}
	assert.Equal(t, []string{"a", `b"`, "c"}, got)
	assert.Equal(t, `(id != "x") and id > "b\""`, sent[1])
	assert.EqualValues(t, 1, b.Snapshot().Successes, "one iteration is one call")
	require.NoError(t, it.Close())
	_, err = it.Next(t.Context())
	assert.ErrorIs(t, err, io.EOF)
}

func TestIteratorThatDiesHalfWayIsAFailure(t *testing.T) {
	s, addr := serve(t)
	c := connect(t, vectorstore.Config{Address: addr})
	s.on("Query", func(context.Context, any) (any, error) {
		if s.count("Query") > 1 {
			return nil, status.Error(codes.Unavailable, "gone")
		}
		return &milvuspb.QueryResults{
			Status:     ok(),
			FieldsData: []*schemapb.FieldData{entity.NewColumnVarChar("id", []string{"a", "b"}).FieldData()},
		}, nil
	})
	g, b := guard(t)
	open := func() *vectorstore.Iterator {
		it, err := g.QueryIterator(
			t.Context(),
			c,
			client.NewQueryIteratorOption("docs").WithOutputFields("id").WithBatchSize(2),
		)
		require.NoError(t, err)
		return it
	}
	it := open()
	_, err := it.Next(t.Context())
	require.NoError(t, err)
	for range 2 {
		_, err = it.Next(t.Context())
		assert.Equal(t, codes.Unavailable, status.Code(err), "%v", err)
	}
	assert.EqualValues(t, 1, b.Snapshot().Failures)
	assert.Zero(t, b.Snapshot().Successes)
}

// An error that wraps io.EOF is a broken connection; it was the end of the
// rows, and a success.
func TestErrorAroundEOFIsNotTheEndOfAnIteration(t *testing.T) {
	s, addr := serve(t)
	s.reply(
		"Query",
		&milvuspb.QueryResults{
			Status:     ok(),
			FieldsData: []*schemapb.FieldData{entity.NewColumnVarChar("id", []string{"a", "b"}).FieldData()},
		},
	)
	broken := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker,
		opts ...grpc.CallOption,
	) error {
		if strings.HasSuffix(method, "/Query") && s.count("Query") > 0 {
			return fmt.Errorf("read tcp: %w", io.EOF)
		}
		return invoke(ctx, method, req, reply, cc, opts...)
	}
	c := connect(
		t,
		vectorstore.Config{Address: addr, DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(broken)}},
	)
	g, b := guard(t)
	it, err := g.QueryIterator(
		t.Context(),
		c,
		client.NewQueryIteratorOption("docs").WithOutputFields("id").WithBatchSize(2),
	)
	require.NoError(t, err)
	_, err = it.Next(t.Context())
	require.NoError(t, err)
	for range 2 {
		_, err = it.Next(t.Context())
		require.ErrorContains(t, err, "read tcp: EOF")
		require.NotErrorIs(t, err, io.EOF, "callers do compare with errors.Is")
	}
	assert.EqualValues(t, 1, b.Snapshot().Failures)
	assert.Zero(t, b.Snapshot().Successes)
}

// The breaker's own classifier has no say, and the refusal shows the error of
// the iteration.
func TestIteratorsVerdictIsTheDoorsAndLastFailureIsMilvuss(t *testing.T) {
	s, addr := serve(t)
	c := connect(t, vectorstore.Config{Address: addr})
	s.fail("Query", status.Error(codes.Unavailable, "gone"))
	b := testutil.NewBreaker(
		t,
		"test",
		resilience.Config{FailMax: 1, Classify: func(context.Context, error) resilience.Verdict {
			return resilience.Verdict{Outcome: resilience.Ignored}
		}},
	)
	open := func() error {
		_, err := vectorstore.Guard{
			Breaker: b,
		}.QueryIterator(
			t.Context(),
			c,
			client.NewQueryIteratorOption("docs").WithOutputFields("id"),
		)
		return err
	}
	failed := open()
	var refused *resilience.OpenError
	require.ErrorAs(t, open(), &refused)
	assert.Same(t, failed, refused.LastFailure())
}

// A deadline of the iteration reached the SDK as a cancellation, and was
// ignored as the caller's.
func TestIterationThatRunsOutOfTimeIsAFailure(t *testing.T) {
	s, addr := serve(t)
	c := connect(t, vectorstore.Config{Address: addr})
	s.on("Query", func(ctx context.Context, _ any) (any, error) {
		if s.count("Query") > 1 {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return &milvuspb.QueryResults{
			Status:     ok(),
			FieldsData: []*schemapb.FieldData{entity.NewColumnVarChar("id", []string{"a", "b"}).FieldData()},
		}, nil
	})
	g, b := guard(t)
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	it, err := g.QueryIterator(ctx, c, client.NewQueryIteratorOption("docs").WithOutputFields("id").WithBatchSize(2))
	require.NoError(t, err)
	_, err = it.Next(t.Context())
	require.NoError(t, err)
	_, err = it.Next(t.Context())
	require.ErrorIs(t, err, context.DeadlineExceeded)
	assert.EqualValues(t, 1, b.Snapshot().Failures)
}

// leaving is a client that leaves by leave, and whose iterator panics.
type leaving struct {
	vectorstore.Admin
	vectorstore.Server
	leave func()
}

func (c leaving) HasCollection(context.Context, string) (bool, error) { c.leave(); return true, nil }

func (c leaving) QueryIterator(context.Context, *client.QueryIteratorOption) (*client.QueryIterator, error) {
	c.leave()
	return &client.QueryIterator{}, nil
}

func TestPanicAndGoexitAreCountedAsPanics(t *testing.T) {
	opt := client.NewQueryIteratorOption("docs").WithOutputFields("id")
	for name, leave := range map[string]func(){"panic": func() { panic("a bug") }, "goexit": runtime.Goexit} {
		g, b := guard(t)
		ctx := t.Context()
		testutil.Isolate(func() { _, _ = g.HasCollection(ctx, leaving{leave: leave}, "docs") })
		testutil.Isolate(func() { _, _ = g.QueryIterator(ctx, leaving{leave: leave}, opt) })
		it, err := g.QueryIterator(ctx, leaving{leave: func() {}}, opt)
		require.NoError(t, err)
		assert.Panics(t, func() { _, _ = it.Next(ctx) }, name)
		_, err = it.Next(ctx)
		require.Error(t, err, "it is over")
		require.NoError(t, it.Close())
		s := b.Snapshot()
		assert.Equal(t, [2]uint64{3, 3}, [2]uint64{s.Calls, s.Panics}, name)
	}
}

func TestSDKsOwnRefusalsAreIgnored(t *testing.T) {
	_, addr := serve(t)
	c := connect(t, vectorstore.Config{Address: addr})
	g, b := guard(t)
	_, err := g.Upsert(t.Context(), c, "docs", "", rowsOf("a")[0])
	require.ErrorContains(t, err, "field vector not passed")
	assert.EqualValues(t, 1, b.Snapshot().Ignored)
}

func TestNewClientRefusesBadConfig(t *testing.T) {
	for name, cfg := range map[string]vectorstore.Config{
		"no address": {}, "missing CA": {Address: "h:1", CAFile: t.TempDir() + "/none.pem"},
		"bad address": {Address: "http://%zz"},
	} {
		_, err := vectorstore.NewClient(t.Context(), cfg)
		assert.Equal(t, codes.InvalidArgument, status.Code(err), name)
	}
}

func TestExpressions(t *testing.T) {
	assert.Equal(t, `id in ["a","b\"","\\"]`, vectorstore.In("id", []string{"a", `b"`, `\`}))
	assert.Equal(t, `n in [1,-2]`, vectorstore.In("n", []int64{1, -2}))
	assert.Equal(t, `n in []`, vectorstore.In("n", []int64(nil)))
	assert.Equal(t, `"x\ny"`, vectorstore.Quote("x\ny"))
	assert.True(t, strings.HasPrefix(vectorstore.Quote(`"`), `"\"`))
}
