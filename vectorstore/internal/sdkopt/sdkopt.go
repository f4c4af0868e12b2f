// Package sdkopt reads the options of the Milvus SDK whose fields the SDK
// keeps to itself, so that a backend that is not the SDK's client can obey
// them. It is tied to the SDK's version by its test.
package sdkopt

import (
	"reflect"

	"github.com/milvus-io/milvus-sdk-go/v2/client"
	"github.com/milvus-io/milvus-sdk-go/v2/entity"
)

// Get is what the options of client.Client.Get ask for.
type Get struct {
	Partitions   []string
	OutputFields []string
}

// ReadGet applies the options and returns what they ask for.
func ReadGet(opts []client.GetOption) Get {
	target := reflect.New(reflect.TypeFor[client.GetOption]().In(0).Elem())
	for _, opt := range opts {
		reflect.ValueOf(opt).Call([]reflect.Value{target})
	}
	return Get{
		Partitions:   stringsOf(target.Elem().FieldByName("partitionNames")),
		OutputFields: stringsOf(target.Elem().FieldByName("outputFields")),
	}
}

// Iterator is what a client.QueryIteratorOption asks for.
type Iterator struct {
	Collection   string
	Partitions   []string
	Expr         string
	OutputFields []string
	BatchSize    int
}

// ReadIterator returns what the option asks for.
func ReadIterator(opt *client.QueryIteratorOption) Iterator {
	v := reflect.ValueOf(opt).Elem()
	return Iterator{
		Collection:   v.FieldByName("collectionName").String(),
		Partitions:   stringsOf(v.FieldByName("partitionNames")),
		Expr:         v.FieldByName("expr").String(),
		OutputFields: stringsOf(v.FieldByName("outputFields")),
		BatchSize:    int(v.FieldByName("batchSize").Int()),
	}
}

// Search is what a client.ANNSearchRequest asks for.
type Search struct {
	Vectors []entity.Vector
	Param   entity.SearchParam
	Options []client.SearchQueryOptionFunc
	Limit   int
}

// ReadSearch returns what the request asks for.
func ReadSearch(r *client.ANNSearchRequest) Search {
	v := reflect.ValueOf(r).Elem()
	return Search{
		Vectors: read[[]entity.Vector](v.FieldByName("vectors")),
		Param:   read[entity.SearchParam](v.FieldByName("searchParam")),
		Options: read[[]client.SearchQueryOptionFunc](v.FieldByName("options")),
		Limit:   int(v.FieldByName("limit").Int()),
	}
}

// read goes by the address, since reflection gives no values out of fields that
// are not exported.
func read[T any](field reflect.Value) T {
	return *reflect.NewAt(reflect.TypeFor[T](), field.Addr().UnsafePointer()).Interface().(*T)
}

func stringsOf(v reflect.Value) []string {
	out := make([]string, v.Len())
	for i := range out {
		out[i] = v.Index(i).String()
	}
	return out
}
