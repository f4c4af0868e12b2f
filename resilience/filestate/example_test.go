package filestate_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/penstock-go/penstock/resilience/filestate"
)

// What one process writes another one finds.
func Example() {
	folder, err := os.MkdirTemp("", "")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(folder)
	path := filepath.Join(folder, "breakers.json")

	first, err := filestate.New(path, filestate.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err = first.Swap(context.Background(), "llm", 0, []byte("open"), 0); err != nil {
		fmt.Println(err)
	}

	second, err := filestate.New(path, filestate.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	r, err := second.Load(context.Background(), "llm")
	fmt.Println(string(r.Value), err)
	// Output: open <nil>
}
