package state_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/penstock-go/penstock/objectstore/filestore"
	"github.com/penstock-go/penstock/pipeline/journal"
	"github.com/penstock-go/penstock/pipeline/state"
)

func ExampleOpen() {
	ctx := context.Background()
	folder, err := os.MkdirTemp("", "example-*")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)
	store, err := filestore.Open(folder) // or objectstore.NewClient
	if err != nil {
		log.Fatal(err)
	}
	config := state.Config{Objects: store, Bucket: "handbook", Prefix: "nightly", CreateBucket: true}

	s, err := state.Open(ctx, config)
	if err != nil {
		log.Fatal(err) // *lease.HeldError: another run has it
	}
	// pipeline.Config{Journal: s.Journal, …} does this:
	deferred := journal.Problem{
		ID: "docs/a.md", Status: journal.Deferred, Stage: "embed",
		Reason: "the model is unavailable", At: time.Now(),
	}
	if err := s.Journal.Fail(ctx, "destination", deferred); err != nil {
		log.Fatal(err)
	}
	if err := s.Close(ctx); err != nil {
		log.Fatal(err)
	}

	next, err := state.Read(ctx, config) // elsewhere
	if err != nil {
		log.Fatal(err)
	}
	for p, err := range next.Journal.Problems(ctx, "destination", "") {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(p.Status, p.ID, p.Reason)
	}
	if err := next.Close(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: deferred docs/a.md the model is unavailable
}
