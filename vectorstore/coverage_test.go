package vectorstore_test

import (
	"reflect"
	"testing"

	"github.com/milvus-io/milvus-sdk-go/v2/client"
	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/vectorstore"
)

const (
	rbac      = "accounts and rights are an operator's work, done with the operator's tools"
	cluster   = "resource groups, replicas and segments are an operator's work"
	databases = "databases are an operator's work; Config.Database chooses one"
	bulk      = "bulk files and compaction run for minutes on the server, outside a pipeline's calls"
)

// excluded are the SDK's methods without a door, each with its reason.
var excluded = map[string]string{
	"Close":           "it ends the client and asks the server nothing",
	"UsingDatabase":   "it changes the database of all goroutines at once; make a client with Config.Database",
	"NewCollection":   "it is CreateCollection, CreateIndex and LoadCollection in one call with metric IP, three chances to fail half-way",
	"AlterCollection": "properties of a running collection are an operator's work",
	"AlterIndex":      "properties of a running index are an operator's work",

	"GetCollectionStatistics": `its counts lag behind and include deleted rows; Query "count(*)" at Strong consistency`,
	"GetIndexState":           "DescribeIndex and a synchronous CreateIndex tell",
	"GetIndexBuildProgress":   "DescribeIndex and a synchronous CreateIndex tell",
	"GetLoadingProgress":      "GetLoadState and a synchronous LoadCollection tell",
	"QueryByPks":              "it is Get with partitions; Get has an option for those",
	"FlushV2":                 "it is Flush with the positions that a backup needs",
	"CalcDistance":            "servers since 2.3 do not have it",
	"CreateCollectionByRow":   "rows by reflection; use columns",
	"InsertByRows":            "deprecated; use columns",
	"InsertRows":              "rows by reflection, without the checks of columns; use columns",
	"ReplicateMessage":        "replication between clusters",

	"ListDatabases": databases, "CreateDatabase": databases, "DropDatabase": databases, "AlterDatabase": databases,
	"DescribeDatabase": databases,
	"BackupRBAC":       rbac, "RestoreRBAC": rbac, "CreateCredential": rbac, "UpdateCredential": rbac,
	"DeleteCredential": rbac, "ListCredUsers": rbac,
	"CreateRole": rbac, "DropRole": rbac, "AddUserRole": rbac, "RemoveUserRole": rbac, "ListRoles": rbac,
	"ListUsers": rbac, "DescribeUser": rbac,
	"DescribeUsers": rbac, "ListGrant": rbac, "ListGrants": rbac, "Grant": rbac, "Revoke": rbac,
	"GetReplicas": cluster, "GetPersistentSegmentInfo": cluster, "ListResourceGroups": cluster,
	"CreateResourceGroup":  cluster,
	"UpdateResourceGroups": cluster, "DescribeResourceGroup": cluster, "DropResourceGroup": cluster,
	"TransferNode": cluster, "TransferReplica": cluster,
	"ManualCompaction": bulk, "GetCompactionState": bulk, "GetCompactionStateWithPlans": bulk, "BulkInsert": bulk,
	"GetBulkInsertState": bulk, "ListBulkInsertTasks": bulk,
}

func TestEveryMethodOfTheSDKHasADoorOrAReason(t *testing.T) {
	sdk, doors := reflect.TypeFor[client.Client](), reflect.TypeFor[vectorstore.Guard]()
	known := map[string]bool{}
	for method := range sdk.Methods() {
		name := method.Name
		known[name] = true
		_, door := doors.MethodByName(name)
		reason := excluded[name]
		assert.NotEqual(t, door, reason != "", "%s: a door or a reason, one of them", name)
	}
	for name := range excluded {
		assert.True(t, known[name], "%s is excluded, but the SDK does not have it", name)
	}
}

// TestDoorsCarryTheSDKsArguments compares each door's parameters and results
// with those of the SDK's method, the client aside.
func TestDoorsCarryTheSDKsArguments(t *testing.T) {
	sdk, doors := reflect.TypeFor[client.Client](), reflect.TypeFor[vectorstore.Guard]()
	for method := range sdk.Methods() {
		door, ok := doors.MethodByName(method.Name)
		if !ok || method.Name == "QueryIterator" { // returns the door's own type
			continue
		}
		assert.Equal(t, method.Type.IsVariadic(), door.Type.IsVariadic(), method.Name)
		if !assert.Equal(t, method.Type.NumIn()+2, door.Type.NumIn(), method.Name) {
			continue
		}
		for p := 1; p < method.Type.NumIn(); p++ {
			assert.Equal(t, method.Type.In(p), door.Type.In(p+2), "%s, argument %d", method.Name, p)
		}
		for r := range method.Type.NumOut() {
			assert.Equal(t, method.Type.Out(r), door.Type.Out(r), "%s, result %d", method.Name, r)
		}
	}
}
