package objectstore_test

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/penstock-go/penstock/objectstore"
	"github.com/penstock-go/penstock/resilience"
)

// untraced turns spans off for a benchmark.
func untraced(b *testing.B) {
	before := otel.GetTracerProvider()
	otel.SetTracerProvider(noop.NewTracerProvider())
	b.Cleanup(func() { otel.SetTracerProvider(before) })
}

type instant struct {
	objectstore.Reader
	text string
}

func (i instant) HeadObject(context.Context, *s3.HeadObjectInput, ...func(*s3.Options)) (*s3.HeadObjectOutput, error) {
	return &s3.HeadObjectOutput{ETag: aws.String(`"e"`)}, nil
}

func (i instant) GetObject(context.Context, *s3.GetObjectInput, ...func(*s3.Options)) (*s3.GetObjectOutput, error) {
	return &s3.GetObjectOutput{
		ETag: aws.String(`"e"`), Body: io.NopCloser(strings.NewReader(i.text)), ContentLength: aws.Int64(int64(len(i.text))),
	}, nil
}

func BenchmarkCall(b *testing.B) {
	untraced(b)
	g, _ := breaker(b, resilience.Config{})
	in := &s3.HeadObjectInput{Bucket: aws.String("bucket"), Key: aws.String("key")}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := g.HeadObject(b.Context(), instant{}, in); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRefused(b *testing.B) {
	untraced(b)
	g, br := breaker(b, resilience.Config{})
	br.ForceOpen("maintenance")
	in := &s3.HeadObjectInput{Bucket: aws.String("bucket"), Key: aws.String("key")}
	b.ReportAllocs()
	for b.Loop() {
		_, err := g.HeadObject(b.Context(), instant{}, in)
		require.Error(b, err)
	}
}

func BenchmarkBody(b *testing.B) {
	untraced(b)
	g, _ := breaker(b, resilience.Config{})
	client, in := instant{text: strings.Repeat("x", 1<<20)}, get("key")
	buf := make([]byte, 4<<10)
	b.ReportAllocs()
	b.SetBytes(int64(len(client.text)))
	for b.Loop() {
		out, err := g.GetObject(b.Context(), client, in)
		if err != nil {
			b.Fatal(err)
		}
		for err == nil {
			_, err = out.Body.Read(buf)
		}
		_ = out.Body.Close()
	}
}
