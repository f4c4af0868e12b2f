package vectorstore_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/milvus-io/milvus-proto/go-api/v2/commonpb"
	"github.com/milvus-io/milvus-proto/go-api/v2/milvuspb"
	"github.com/stretchr/testify/assert"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/penstock-go/penstock/resilience"
	"github.com/penstock-go/penstock/vectorstore"
)

// outcomeOf is what a breaker makes of a reply with this status.
func outcomeOf(t *testing.T, st *commonpb.Status) (resilience.Outcome, error) {
	t.Helper()
	s, addr := serve(t)
	c := connect(t, vectorstore.Config{Address: addr})
	s.reply("Upsert", &milvuspb.MutationResult{Status: st})
	var got resilience.Verdict
	g, _ := guard(t)
	g.Settled = func(v resilience.Verdict) { got = v }
	_, err := g.Upsert(t.Context(), c, "docs", "", rowsOf("a")...)
	return got.Outcome, err
}

func meant(code int32, reason string, retriable bool) resilience.Outcome {
	err := &vectorstore.ServerError{Code: code, Reason: reason, Retriable: retriable}
	return vectorstore.Classify(context.Background(), err).Outcome
}

// Milvus's own split, of its error_classification_test.go: what it blames on
// the request is never a failure of the server's.
func TestCodesThatMilvusBlamesOnTheRequestAreNoFailures(t *testing.T) {
	for _, code := range []int32{
		102, 104, 105, 107, 108, 109, 300, 301, 302, 303, 702, 801, 802, 1100, 1101, 1102, 1400, 1401, 1402,
		1800, 1801, 1802, 1804, 2100, 2201,
		2007, 2020, 2021, 2022, 2023, 2025, 2026, 2028, 2031, 2032, 2042, // segcore's
	} {
		servers := []resilience.Outcome{resilience.Failure, resilience.Throttled}
		assert.NotContains(t, servers, meant(code, "", false), code)
	}
}

// What Milvus says can be tried again is the server's state: those that
// errors.go calls retriable.
func TestCodesThatMilvusCallsRetriableAreTheServers(t *testing.T) {
	throttled := []int32{4, 8, 12, 1807, 2043}
	for _, code := range []int32{
		1, 2, 4, 8, 12, 103, 106, 202, 305, 1002, 1807, 2200, 2307, 2308, 2309, 2311, 2312, 2313, 2316,
		2012, 2013, 2014, 2015, 2018, 2027, 2034, 2036, 2037, 2040, 2043, 2045, 2046, // segcore's
	} {
		want := resilience.Failure
		if slices.Contains(throttled, code) {
			want = resilience.Throttled
		}
		assert.Equal(t, want, meant(code, "", true), code)
	}
	for _, code := range []int32{9, 11} { // denied by the quota center, which lets writes in again by itself
		assert.Equal(t, resilience.Throttled, meant(code, "", false), code)
	}
}

func TestUnknownCodesAreReadByTheirRange(t *testing.T) {
	const failure, ignored, denied = resilience.Failure, resilience.Ignored, resilience.Denied
	for _, row := range []struct {
		code      int32
		want      resilience.Outcome
		retriable resilience.Outcome
	}{
		{42, failure, failure},     // service
		{150, ignored, failure},    // collection
		{230, ignored, failure},    // partition
		{260, ignored, failure},    // capacity
		{350, ignored, failure},    // resource group
		{450, failure, failure},    // replica
		{550, failure, failure},    // channel
		{650, failure, failure},    // segment
		{750, ignored, failure},    // index
		{850, ignored, failure},    // database
		{950, failure, failure},    // node
		{1050, failure, failure},   // IO
		{1150, ignored, failure},   // parameter
		{1250, failure, failure},   // metrics
		{1350, failure, failure},   // message queue
		{1450, denied, denied},     // privilege
		{1550, failure, failure},   // shard delegator
		{1650, ignored, failure},   // alias
		{1750, ignored, failure},   // field
		{1850, ignored, failure},   // REST
		{1950, failure, failure},   // replication
		{2090, failure, failure},   // segcore
		{2150, ignored, failure},   // import
		{2250, failure, failure},   // query
		{2350, failure, failure},   // compaction
		{2450, failure, failure},   // data node
		{3050, failure, failure},   // general
		{424242, failure, failure}, // none
		{-1, failure, failure},
	} {
		assert.Equal(t, row.want, meant(row.code, "", false), row.code)
		assert.Equal(t, row.retriable, meant(row.code, "", true), "%d, retriable", row.code)
	}
}

// Under the code for what has none, the words decide. The reasons are those of
// Milvus 2.3.5 and of the tests of its later releases.
func TestWordsOfMistakesAndOfFailures(t *testing.T) {
	const failure, ignored, answer = resilience.Failure, resilience.Ignored, resilience.Success
	const from = "failed to search/query delegator 1 for channel by-dev-rootcoord-dml_2_47v0: " +
		"fail to Search, QueryNode ID=1, reason=worker(1) query failed: "
	for reason, want := range map[string]resilience.Outcome{
		"invalid max query result window, (offset+limit) should be in range [1, 16384], but got 16480": ignored,
		"offset+topk [32760] is invalid, top k should be in range [1, 16384], but got 32760":           ignored,
		"nq [16385] is invalid, nq (number of search vector per search request) should be in range":    ignored,
		"predicate is not a boolean expression: id, data type: Int64":                                  ignored,
		"cannot parse expression: s == \"rpc error: connection timeout\", error: line 1:3":             ignored,
		"invalid index type: NOSUCH":                                       ignored,
		"M out of range: [1, 2048]":                                        ignored,
		"dimension must be able to be divided by `m`, dimension: 4, m: 3":  ignored,
		"Invalid index name: a b!. Index name cannot only contain numbers": ignored,
		"primary key is not specified":                                     ignored,
		"multiple vector fields is not supported, fields name: v, w":       ignored,
		"duplicated field name":                                            ignored,
		"maximum field's number should be limited to 64":                   ignored,
		"cannot drop the collection via alias = xal":                       ignored,
		"field nofield not exist":                                          ignored,
		"fail to Search, QueryNode ID=1, reason=worker(1) query failed: Assert \"range_filter < radius\"": ignored,
		"reason=collection:4, metric type not match: invalid parameter[expected=L2][actual=IP]":           ignored,
		"[segcoreCode=2028] expression is wrong":                                                          ignored,
		"CreateIndex failed: at most one distinct index is allowed per field":                             answer,
		"partition name nopart not found":                                                                 answer,

		// of its nodes, with what the proxy puts before
		from + "out of range in json: ef(10) should be larger than k(100)":                   ignored,
		from + "[json.exception.type_error.302] type must be number, but is string":          ignored,
		from + " => unsupported right datatype JSON of compare expr: service internal error": ignored,
		from + `Assert "(val == kInt64Val)" at /x/src/query/PlanProto.cpp:47`:                ignored,
		from + "channel not available":                                                       failure,
		from + "=> something failed: service internal error: UnknownError":                   failure,
		from + `Assert "(segment)" at /x/src/segcore/SegmentGrowing.cpp:47`:                  failure,
		"parse output field name failed: a b":                                                ignored,
		"partition name a b not found":                                                       answer,
		"disable create partition if partition key mode is used":                             ignored,
		"not support manually specifying the partition names if partition key mode is used":  ignored,
		"there are more than one partition key, field name = k, l":                           ignored,
		"type param(max_length) should be specified for varChar field of collection storage": ignored,
		`strconv.ParseInt: parsing "abc": invalid syntax`:                                    ignored,

		// of what Milvus stands on
		"etcdserver: invalid auth token":                                                 failure,
		"authentication failed, invalid user ID or password":                             failure,
		"The Access Key Id you provided does not exist in our records.":                  failure,
		"The request signature we calculated does not match the signature you provided.": failure,
		"The security token included in the request is invalid":                          failure,
		"The bucket you are attempting to access must be addressed using the endpoint":   failure,
		"The specified blob does not exist.":                                             failure,
		"file does not exist":                                                            failure,
		"invalid argument":                                                               failure,
		"TopicNotFound: Topic does not exist":                                            failure,
		"x509: certificate is not valid for any names":                                   failure,
		"invalid binary set":                                                             failure,
		"memory usage exceeds the limit":                                                 failure,
		"collection 449123 not found":                                                    failure,
		"":                                                                               failure,
		"failed to search/query delegator 1 for channel by-dev-rootcoord-dml_2: channel not available": failure,
		"fail to Query, QueryNode ID = 1, reason=Timestamp lag too large":                              failure,
		"runtime error: invalid memory address or nil pointer dereference":                             failure,
		"rpc error: code = Unavailable desc = invalid state":                                           failure,
		"The specified key does not exist.":                                                            failure,
		"node 3 is not supported now":                                                                  failure,
		"context deadline exceeded, should be retried":                                                 failure,
		"etcdserver: request timed out, invalid":                                                       failure,
		"[segcoreCode=2014] file does not exist":                                                       failure,
		"something nobody has seen":                                                                    failure,
	} {
		assert.Equal(t, want, meant(65535, reason, false), reason)
	}
	for _, reason := range []string{
		"rate limit exceeded[rate=1]", "quota exceeded[reason=disk]", "service resource insufficient",
	} {
		assert.Equal(t, resilience.Throttled, meant(65535, reason, false), reason)
	}
	assert.Equal(t, ignored, meant(2000, "[segcoreCode=2031] metric type", false))
	assert.Equal(t, failure, meant(2000, "segcore error", false))
	assert.Equal(t, failure, meant(1001, "IO failed: invalid object size", false), "only JSON is the caller's there")
}

// From 2.4 on, and in the codes of 2.2 that later releases set beside their
// own, the server can say itself that the request is wrong.
func TestServerThatBlamesTheRequestIsBelieved(t *testing.T) {
	blamed := map[string]string{"is_input_error": "true"}
	for name, row := range map[string]struct {
		st   *commonpb.Status
		want resilience.Outcome
	}{
		"flag":           {&commonpb.Status{Code: 65535, Reason: "nonsense", ExtraInfo: blamed}, resilience.Ignored},
		"flag, 5":        {&commonpb.Status{Code: 5, ExtraInfo: blamed}, resilience.Ignored},
		"flag, throttle": {&commonpb.Status{Code: 8, ExtraInfo: blamed}, resilience.Throttled},
		"flag, answer":   {&commonpb.Status{Code: 100, ExtraInfo: blamed}, resilience.Success},
		"old, beside": {
			&commonpb.Status{Code: 65535, ErrorCode: commonpb.ErrorCode_IllegalArgument}, resilience.Ignored,
		},
		"old, beside, a failure": {
			&commonpb.Status{Code: 65535, ErrorCode: commonpb.ErrorCode_UnexpectedError}, resilience.Failure,
		},
		"old, beside, not ready": {
			&commonpb.Status{Code: 65535, ErrorCode: commonpb.ErrorCode_NotReadyServe, Reason: "invalid"},
			resilience.Failure,
		},
		"old, beside, rate": {
			&commonpb.Status{Code: 65535, ErrorCode: commonpb.ErrorCode_RateLimit}, resilience.Throttled,
		},
		"old, alone, TopK":       {&commonpb.Status{ErrorCode: commonpb.ErrorCode_IllegalTOPK}, resilience.Ignored},
		"old, alone, permission": {&commonpb.Status{ErrorCode: commonpb.ErrorCode_PermissionDenied}, resilience.Denied},
		"old, alone, missing": {
			&commonpb.Status{ErrorCode: commonpb.ErrorCode_CollectionNotExists}, resilience.Success,
		},
		"old, alone, memory": {&commonpb.Status{ErrorCode: commonpb.ErrorCode_OutOfMemory}, resilience.Failure},
		"old, alone, other":  {&commonpb.Status{ErrorCode: commonpb.ErrorCode_BuildIndexError}, resilience.Failure},
	} {
		got, err := outcomeOf(t, row.st)
		assert.Equal(t, row.want, got, "%s: %v", name, err)
	}
	_, err := outcomeOf(t, &commonpb.Status{Code: 65535, Reason: "nonsense", ExtraInfo: blamed})
	assert.Equal(t, codes.InvalidArgument, status.Code(err))
	var server *vectorstore.ServerError
	assert.ErrorAs(t, err, &server)
	assert.True(t, server.InputError)
	assert.EqualValues(t, 65535, server.Code, fmt.Sprint("the server's own code: ", err))
}
