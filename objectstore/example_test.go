package objectstore_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/s3/transfermanager"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"

	"github.com/penstock-go/penstock/objectstore"
	"github.com/penstock-go/penstock/objectstore/filestore"
	"github.com/penstock-go/penstock/resilience"
)

// exampleStore is a store in a temporary folder with the bucket "docs".
func exampleStore() (*filestore.Store, string) {
	dir, err := os.MkdirTemp("", "penstock-example-*")
	if err != nil {
		panic(err)
	}
	store, err := filestore.Open(dir)
	if err != nil {
		panic(err)
	}
	if _, err = objectstore.CreateBucket(context.Background(), store,
		&s3.CreateBucketInput{Bucket: aws.String("docs")}); err != nil {
		panic(err)
	}
	return store, dir
}

func ExamplePutObject() {
	ctx := context.Background()
	store, dir := exampleStore() // any *s3.Client fits here
	defer os.RemoveAll(dir)
	defer store.Close()

	in := &s3.PutObjectInput{
		Bucket: aws.String("docs"), Key: aws.String("a.txt"), Body: strings.NewReader("hello"),
		IfNoneMatch: aws.String("*"), // create it, once
	}
	out, err := objectstore.PutObject(ctx, store, in)
	fmt.Println(aws.ToString(out.ETag), err)

	in.Body = strings.NewReader("hello again")
	_, err = objectstore.PutObject(ctx, store, in)
	var answer smithy.APIError
	fmt.Println(errors.As(err, &answer) && answer.ErrorCode() == "PreconditionFailed")
	// Output:
	// "5d41402abc4b2a76b9719d911017c592" <nil>
	// true
}

func ExampleGetObject() {
	ctx := context.Background()
	store, dir := exampleStore()
	defer os.RemoveAll(dir)
	defer store.Close()
	_, err := objectstore.PutObject(
		ctx,
		store,
		&s3.PutObjectInput{Bucket: aws.String("docs"), Key: aws.String("a.txt"), Body: strings.NewReader("hello")},
	)
	if err != nil {
		panic(err)
	}

	out, err := objectstore.GetObject(
		ctx,
		store,
		&s3.GetObjectInput{Bucket: aws.String("docs"), Key: aws.String("a.txt")},
	)
	if err != nil {
		panic(err)
	}
	defer out.Body.Close() // the end of the body is the end of the call
	text, err := io.ReadAll(out.Body)
	fmt.Println(string(text), err)
	// Output: hello <nil>
}

func ExampleUploadFile() {
	ctx := context.Background()
	store, dir := exampleStore()
	defer os.RemoveAll(dir)
	defer store.Close()
	source, target := filepath.Join(dir, "report.txt"), filepath.Join(dir, "copy.txt")
	if err := os.WriteFile(source, []byte("a report"), 0o600); err != nil {
		panic(err)
	}

	_, err := objectstore.UploadFile(
		ctx,
		store,
		&transfermanager.UploadObjectInput{Bucket: aws.String("docs"), Key: aws.String("report.txt")},
		source,
	)
	if err != nil {
		panic(err)
	}
	out, err := objectstore.DownloadFile(
		ctx,
		store,
		&s3.GetObjectInput{Bucket: aws.String("docs"), Key: aws.String("report.txt")},
		target,
	)
	if err != nil {
		panic(err)
	}
	fmt.Println(out.Size, out.SHA256 == out.Metadata["sha256"])
	// Output: 8 true
}

func ExampleGuard() {
	ctx := context.Background()
	store, dir := exampleStore()
	defer os.RemoveAll(dir)
	defer store.Close()

	partner := objectstore.Guard{
		Breaker: resilience.NewRegistry(resilience.Config{}).MustRegister("partner-s3", resilience.Config{FailMax: 3}),
	}
	partner.Breaker.ForceOpen("maintenance")
	_, err := partner.HeadBucket(ctx, store, &s3.HeadBucketInput{Bucket: aws.String("docs")})
	var open *resilience.OpenError
	fmt.Println(errors.As(err, &open) && open.Upstream() == "partner-s3", open.Reason())

	_, err = objectstore.HeadBucket(ctx, store, &s3.HeadBucketInput{Bucket: aws.String("docs")}) // another breaker
	fmt.Println(err)
	// Output:
	// true maintenance
	// <nil>
}
