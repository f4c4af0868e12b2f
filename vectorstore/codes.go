package vectorstore

import (
	"cmp"
	"regexp"
	"strconv"
	"strings"

	"github.com/milvus-io/milvus-proto/go-api/v2/commonpb"
	"google.golang.org/grpc/codes"

	"github.com/penstock-go/penstock/resilience"
)

// milvusCode is what one of Milvus's codes means.
type milvusCode struct {
	code    codes.Code
	outcome resilience.Outcome
}

// What a code can mean.
var (
	serverDown    = milvusCode{codes.Unavailable, resilience.Failure}
	serverFails   = milvusCode{codes.Internal, resilience.Failure}
	serverFull    = milvusCode{codes.ResourceExhausted, resilience.Failure}
	slowDown      = milvusCode{codes.ResourceExhausted, resilience.Throttled}
	notThere      = milvusCode{codes.NotFound, resilience.Success}
	thereAlready  = milvusCode{codes.AlreadyExists, resilience.Success}
	wrongState    = milvusCode{codes.FailedPrecondition, resilience.Ignored}
	wrongRequest  = milvusCode{codes.InvalidArgument, resilience.Ignored}
	notSupported  = milvusCode{codes.Unimplemented, resilience.Ignored}
	noCredentials = milvusCode{codes.Unauthenticated, resilience.Denied}
	noPermission  = milvusCode{codes.PermissionDenied, resilience.Denied}
	tooLate       = milvusCode{codes.DeadlineExceeded, resilience.Failure}
)

// milvusCodes are the codes that a reply's status can carry. Each row has the
// name of the code in Milvus's pkg/util/merr/errors.go and the first of these
// releases that has it: 2.3.5, 2.5.7, 2.6.7, and main of 2026. Which of them
// Milvus itself blames on the request, its error_classification_test.go says.
var milvusCodes = map[int32]milvusCode{
	1:  serverDown,   // ErrServiceNotReady, 2.3
	2:  serverDown,   // ErrServiceUnavailable, 2.3
	3:  serverFull,   // ErrServiceMemoryLimitExceeded, 2.3
	4:  slowDown,     // ErrServiceRequestLimitExceeded, 2.3; ErrServiceTooManyRequests, 2.5
	5:  serverFails,  // ErrServiceInternal, 2.3
	6:  serverFails,  // ErrServiceCrossClusterRouting, 2.3
	7:  serverFull,   // ErrServiceDiskLimitExceeded, 2.3
	8:  slowDown,     // ErrServiceRateLimit, 2.3
	9:  slowDown,     // ErrServiceForceDeny, 2.3; ErrServiceQuotaExceeded, 2.5
	10: notSupported, // ErrServiceUnimplemented, 2.3
	11: slowDown,     // ErrServiceTimeTickLongDelay, 2.5: writes are denied until it has caught up
	12: slowDown,     // ErrServiceResourceInsufficient, 2.5

	100: notThere,     // ErrCollectionNotFound, 2.3
	101: wrongState,   // ErrCollectionNotLoaded, 2.3
	102: wrongState,   // ErrCollectionNumLimitExceeded, 2.3
	103: serverDown,   // ErrCollectionNotFullyLoaded, 2.3
	104: wrongState,   // ErrCollectionLoaded, 2.5
	105: wrongRequest, // ErrCollectionIllegalSchema, 2.5
	106: serverDown,   // ErrCollectionOnRecovering, 2.5
	107: wrongRequest, // ErrCollectionVectorClusteringKeyNotAllowed, 2.5
	108: wrongState,   // ErrCollectionReplicateMode, 2.5
	109: wrongRequest, // ErrCollectionSchemaMismatch, 2.5
	200: notThere,     // ErrPartitionNotFound, 2.3
	201: wrongState,   // ErrPartitionNotLoaded, 2.3
	202: serverDown,   // ErrPartitionNotFullyLoaded, 2.3
	250: wrongState,   // ErrGeneralCapacityExceeded, 2.5

	300: notThere,     // ErrResourceGroupNotFound, 2.3
	301: thereAlready, // ErrResourceGroupAlreadyExist, 2.5
	302: wrongState,   // ErrResourceGroupReachLimit, 2.5
	303: wrongRequest, // ErrResourceGroupIllegalConfig, 2.5
	304: serverFull,   // ErrResourceGroupNodeNotEnough, 2.5
	305: serverDown,   // ErrResourceGroupServiceAvailable, 2.5

	700: notThere,     // ErrIndexNotFound, 2.3
	701: wrongRequest, // ErrIndexNotSupported, 2.3
	702: thereAlready, // ErrIndexDuplicate, 2.3
	703: thereAlready, // ErrTaskDuplicate, 2.5
	800: notThere,     // ErrDatabaseNotFound, 2.3
	801: wrongState,   // ErrDatabaseNumLimitExceeded, 2.3
	802: wrongRequest, // ErrDatabaseInvalidName, 2.3

	1100: wrongRequest,  // ErrParameterInvalid, 2.3
	1101: wrongRequest,  // ErrParameterMissing, 2.5
	1102: wrongRequest,  // ErrParameterTooLarge, 2.5
	1200: wrongRequest,  // ErrMetricNotFound, 2.3: of GetMetrics, a type that it does not know
	1400: noCredentials, // ErrPrivilegeNotAuthenticated, 2.3
	1401: noPermission,  // ErrPrivilegeNotPermitted, 2.3
	1402: wrongRequest,  // ErrPrivilegeGroupInvalidName, 2.5

	1600: notThere,     // ErrAliasNotFound, 2.3
	1601: thereAlready, // ErrAliasCollectionNameConfilct, 2.3
	1602: thereAlready, // ErrAliasAlreadyExist, 2.3
	1603: notThere,     // ErrCollectionIDOfAliasNotFound, 2.5
	1700: notThere,     // ErrFieldNotFound, 2.3
	1701: wrongRequest, // ErrFieldInvalidName, 2.3

	1800: noCredentials, // ErrNeedAuthenticate, 2.3
	1801: wrongRequest,  // ErrIncorrectParameterFormat, 2.3
	1802: wrongRequest,  // ErrMissingRequiredParameters, 2.3
	1803: serverFails,   // ErrMarshalCollectionSchema, 2.3
	1804: wrongRequest,  // ErrInvalidInsertData, 2.3
	1805: serverFails,   // ErrInvalidSearchResult, 2.3
	1806: wrongRequest,  // ErrCheckPrimaryKey, 2.3
	1807: slowDown,      // ErrHTTPRateLimit, 2.5
	1900: wrongState,    // ErrDenyReplicateMessage, 2.3
	1901: wrongRequest,  // ErrInvalidMsgBytes, 2.3

	2002: notSupported, // NotImplemented; this row and those up to 2043 are raw codes of segcore, see below
	2003: notSupported, // Unsupported
	2007: wrongRequest, // DataTypeInvalid
	2020: wrongRequest, // FieldIDInvalid
	2021: wrongRequest, // FieldAlreadyExist
	2022: wrongRequest, // OpTypeInvalid
	2023: wrongRequest, // DataIsEmpty
	2025: wrongRequest, // JsonKeyInvalid
	2026: wrongRequest, // MetricTypeInvalid
	2028: wrongRequest, // ExprInvalid
	2031: wrongRequest, // MetricTypeNotMatch
	2032: wrongRequest, // DimNotMatch
	2042: wrongRequest, // InvalidParameter
	2043: slowDown,     // InsufficientResource
	2100: wrongState,   // ErrImportFailed, 2.3
	2201: wrongRequest, // the query plan's, main
	2303: notSupported, // ErrClusteringCompactionClusterNotSupport, 2.5
	2304: notSupported, // ErrClusteringCompactionCollectionNotSupport, 2.5
	2305: wrongState,   // ErrClusteringCompactionCollectionIsCompacting, 2.5
	2306: notSupported, // ErrClusteringCompactionNotSupportVector, 2.5
	3000: notSupported, // ErrOperationNotSupported, 2.5

	10000: serverDown, // CanceledCode, 2.3; a caller who has left is not asked
	10001: tooLate,    // TimeoutCode, 2.3
}

// milvusRanges say what a code means that has no row, by the part of Milvus
// that errors.go gives its hundred to: a name that the caller chose or the
// server's inside. Beyond the last it is the server's.
var milvusRanges = []struct {
	below int32
	means milvusCode
}{
	{100, serverFails},   // service
	{400, wrongState},    // collection, partition, capacity, resource group
	{700, serverFails},   // replica, channel, segment
	{900, wrongState},    // index, database
	{1100, serverFails},  // node, IO
	{1200, wrongRequest}, // parameter
	{1400, serverFails},  // metrics, message queue
	{1500, noPermission}, // privilege
	{1600, serverFails},  // shard delegator
	{1900, wrongRequest}, // alias, field, REST
	{2100, serverFails},  // replication, segcore
	{2200, wrongState},   // import
}

const (
	// unexpected is the code that Milvus gives to what has none: most mistakes
	// of a caller up to 2.5, and its own failures alike.
	unexpected = 65535
	// ioFailed is the code of its own failures and of JSON that it does not
	// take.
	ioFailed = 1001
	// segcore is the code of the part in C++, and segcoreAny that of what it
	// has no other for. Later releases name the code of that part in the
	// reason; before, it is the code of the reply.
	segcore    = 2000
	segcoreAny = 2001
)

// meaning is what a reply's code says of the call.
func meaning(e *ServerError) milvusCode {
	m, known := milvusCodes[e.Code]
	switch {
	case known:
	case e.Code == unexpected && e.older != 0:
		m = milvusCodes[e.older]
	case e.Code == unexpected, e.Code == ioFailed, e.Code == segcore, e.Code == segcoreAny:
		m = worded(e)
	default:
		m = ranged(e)
	}
	if e.InputError && m.outcome == resilience.Failure {
		return wrongRequest
	}
	return m
}

// ranged is the meaning of a code without a row. What the server says can be
// tried again is its own state, even if the caller chose the name.
func ranged(e *ServerError) milvusCode {
	for _, r := range milvusRanges {
		if e.Code < r.below {
			if e.Retriable && r.means.outcome == resilience.Ignored {
				return serverDown
			}
			return r.means
		}
	}
	return serverFails
}

// segcoreCode is how the reason names a code of segcore, from 2.6 on.
var segcoreCode = regexp.MustCompile(`segcoreCode=(\d+)`)

// wrappers are what the proxy puts before the words of a node that it has
// asked.
var wrappers = regexp.MustCompile(`^(failed to search/query delegator \d+ for channel \S+: )?` +
	`(fail to \w+, QueryNode ID ?= ?\d+, reason=)?(worker\(\d+\) query failed: )?`)

func unwrapped(reason string) string {
	return strings.TrimSpace(strings.TrimPrefix(reason, wrappers.FindString(reason)))
}

// worded is the meaning of the codes that stand for mistakes and failures
// alike. Where no other sign exists, the reason's words decide.
func worded(e *ServerError) milvusCode {
	if m, ok := definite(e); ok {
		return m
	}
	said := unwrapped(e.Reason)
	if e.Code != ioFailed && !outage.MatchString(said) && likely.MatchString(said) {
		return wrongRequest
	}
	return serverFails
}

// definite is the meaning of such a code where the reason leaves no doubt.
func definite(e *ServerError) (milvusCode, bool) {
	if found := segcoreCode.FindStringSubmatch(e.Reason); found != nil {
		n, _ := strconv.ParseInt(found[1], 10, 32)
		if m, ok := milvusCodes[int32(n)]; ok || n > segcoreAny {
			return cmp.Or(m, serverFails), true
		}
	}
	said := unwrapped(e.Reason)
	for _, m := range certain {
		if m.words.MatchString(said) {
			return m.means, true
		}
	}
	return milvusCode{}, false
}

// certain are the words of a caller's mistakes, whatever else the reason
// quotes: the checks of Milvus's proxy (internal/proxy) and root coordinator,
// of its parser of expressions (internal/parser/planparserv2), of the parts in
// C++ that read a plan (internal/core/src/query) and search parameters
// (knowhere), and encoding/json.
var certain = []struct {
	words *regexp.Regexp
	means milvusCode
}{
	{regexp.MustCompile(`^create duplicate collection with different parameters|: at most one distinct index`), thereAlready},
	{regexp.MustCompile(`^(partition|alias|database) (name )?.+ not (found|exist)`), notThere},
	{regexp.MustCompile(`^collection [^\d\s]\S* not (found|exist)`), notThere},
	{regexp.MustCompile(`please release it first|^cannot drop the collection via alias`), wrongState},
	{regexp.MustCompile(`cannot parse expression|failed to create (query|expr) plan|^predicate is not a boolean`), wrongRequest},
	{regexp.MustCompile(`^=> unsupported |^Assert ".*" at \S*PlanProto\.cpp|^\[json\.exception\.`), wrongRequest},
	{regexp.MustCompile(`(out of range|type conflict|invalid value) in json|out of range: \[|able to be divided by`), wrongRequest},
	{regexp.MustCompile(`^(IO failed: )?(json: cannot unmarshal|invalid character|unexpected end of JSON)`), wrongRequest},
	{regexp.MustCompile(`^(IO failed: )?cannot set json key to|invalid parameter\[|^strconv\.Parse`), wrongRequest},
	{regexp.MustCompile(`^(topk|offset\+topk|offset|limit|nq) \[.*\] is invalid|^invalid max query result window`), wrongRequest},
	{regexp.MustCompile(`^(fieldName\(|fieldSchema\(|field |vector field |output field ).+ not (found|exist)`), wrongRequest},
	{regexp.MustCompile(`^parse output field name failed|^empty expression should|with pagination is not allowed`), wrongRequest},
	{regexp.MustCompile(`^(?i:invalid) \w+ (name|alias|type)\b|^(?i:invalid) dimension: |range_filter.*radius`), wrongRequest},
	{regexp.MustCompile(`vector dimension mismatch|vector type must be the same|metric type not match`), wrongRequest},
	{regexp.MustCompile(`^metric type not found or not supported|^(binary|float) vector is only supported`), wrongRequest},
	{regexp.MustCompile(`^type param\(\w+\) should be specified|^dimension is not defined in field type params`), wrongRequest},
	{regexp.MustCompile(`^primary key is not specified|^only primary field can|^duplicated field name`), wrongRequest},
	{regexp.MustCompile(`^multiple vector fields is not supported|^element data type \w+ is not valid`), wrongRequest},
	{regexp.MustCompile(`^maximum (field|shard)s?'s number should|^partition number \(\d+\) exceeds max`), wrongRequest},
	{regexp.MustCompile(`^the (maximum (length|capacity) specified|partition key field|data type of partition key)`), wrongRequest},
	{regexp.MustCompile(`^there are more than one partition key|^num_partitions should only be specified`), wrongRequest},
	{regexp.MustCompile(`^disable \w+ partitions? if|^not support manually specifying the partition`), wrongRequest},
	{regexp.MustCompile(`^failed to load partition, due to no partition specified`), wrongRequest},
	{regexp.MustCompile(`(?i)rate limit|quota exceeded|resource insufficient|too many (concurrent )?requests`), slowDown},
}

// outage are the words of a failure, of Milvus or of what it stands on, so that
// what comes with them is none of the mistakes below.
var outage = regexp.MustCompile(`(?i)rpc error|context (deadline|cancell?ed)|time(d )?out|connection|broken pipe|` +
	`unavailable|not available|no available|not ready|not healthy|offline|nil pointer|panic|runtime error|` +
	`memory|disk|no space|not enough|lag too large|etcd|pulsar|kafka|\bmq\b|topic|x509|certificate|credential|` +
	`access key|signature|token|authenticat|bucket|\bblob|container|specified key|nosuch|storage|binlog|` +
	`binary set|file|invalid argument|\b(channel|segment|node|delegator|shard leader|replica)s?\b`)

// likely are the words with which the proxy's other checks begin, and of what
// they ask for.
var likely = regexp.MustCompile(`^(?i:invalid|illegal|unsupported|duplicated?|wrong) |` +
	`(?i)\b(should|must) (not |only )?be\b|\bis not (defined|specified|supported|allowed|provided)\b|` +
	`\bnot (supported|allowed)\b|limited to|exceeds? (the )?max|types? (not match|mismatch)|dimension mismatch`)

// legacy are the codes of Milvus 2.2, which later releases still set beside
// their own, and alone where a reply has no other. merr of the SDK knows half
// of them.
var legacy = map[commonpb.ErrorCode]int32{
	commonpb.ErrorCode_ConnectFailed:            2,
	commonpb.ErrorCode_PermissionDenied:         1401,
	commonpb.ErrorCode_CollectionNotExists:      100,
	commonpb.ErrorCode_IllegalArgument:          1100,
	commonpb.ErrorCode_IllegalDimension:         1100,
	commonpb.ErrorCode_IllegalIndexType:         1100,
	commonpb.ErrorCode_IllegalCollectionName:    1100,
	commonpb.ErrorCode_IllegalTOPK:              1100,
	commonpb.ErrorCode_IllegalRowRecord:         1100,
	commonpb.ErrorCode_IllegalVectorID:          1100,
	commonpb.ErrorCode_IllegalNLIST:             1100,
	commonpb.ErrorCode_IllegalMetricType:        1100,
	commonpb.ErrorCode_UpsertAutoIDTrue:         1100,
	commonpb.ErrorCode_OutOfMemory:              3,
	commonpb.ErrorCode_IndexNotExist:            700,
	commonpb.ErrorCode_EmptyCollection:          101,
	commonpb.ErrorCode_CollectionNameNotFound:   100,
	commonpb.ErrorCode_ForceDeny:                9,
	commonpb.ErrorCode_RateLimit:                8,
	commonpb.ErrorCode_InsufficientMemoryToLoad: 3,
	commonpb.ErrorCode_MemoryQuotaExhausted:     3,
	commonpb.ErrorCode_DiskQuotaExhausted:       7,
	commonpb.ErrorCode_TimeTickLongDelay:        11,
	commonpb.ErrorCode_NotReadyServe:            1,
	commonpb.ErrorCode_NotReadyCoordActivating:  1,
}

// inputFlag is what Milvus writes into a status, from 2.4 on, when it blames
// the request: InputErrorFlagKey in merr/utils.go.
const inputFlag = "is_input_error"

// serverError is what a status that is not well says.
func serverError(method string, st *commonpb.Status) *ServerError {
	e := &ServerError{Method: method, Code: st.GetCode(), Reason: st.GetReason(), Retriable: st.GetRetriable()}
	_, e.InputError = st.GetExtraInfo()[inputFlag]
	//lint:ignore SA1019 some servers set nothing else
	e.older = legacy[st.GetErrorCode()] //nolint:staticcheck // as above
	if e.Code == 0 {
		e.Code = cmp.Or(e.older, unexpected)
	}
	return e
}
