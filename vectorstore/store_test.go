package vectorstore_test

import (
	"github.com/penstock-go/penstock/vectorstore"
	"github.com/penstock-go/penstock/vectorstore/sqlitestore"
)

var (
	_ vectorstore.Store        = (*sqlitestore.Store)(nil)
	_ vectorstore.TextSearcher = (*sqlitestore.Store)(nil)
)
