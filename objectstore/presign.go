package objectstore

import (
	"context"
	"errors"
	"log/slog"
	"time"

	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/penstock-go/penstock/resilience"
)

// PresignAPI is the part of *s3.PresignClient that GeneratePresignedURL needs.
type PresignAPI interface {
	PresignGetObject(ctx context.Context, in *s3.GetObjectInput, optFns ...func(*s3.PresignOptions)) (*v4.PresignedHTTPRequest, error)
	PresignPutObject(ctx context.Context, in *s3.PutObjectInput, optFns ...func(*s3.PresignOptions)) (*v4.PresignedHTTPRequest, error)
}

// PresignInput is the request to sign: exactly one of the two.
type PresignInput struct {
	Get *s3.GetObjectInput
	Put *s3.PutObjectInput
}

// GeneratePresignedURL signs a URL with which someone else may get or put an
// object, for 15 minutes unless s3.WithPresignExpires says otherwise. Signing
// is local: it takes no slot and counts as nothing. While the breaker is not
// closed it is refused all the same, since the URL would lead to an upstream
// that is away.
func (g Guard) GeneratePresignedURL(ctx context.Context, client PresignAPI, in PresignInput, optFns ...func(*s3.PresignOptions)) (*v4.PresignedHTTPRequest, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := refusal(g.breaker()); err != nil {
		return nil, err
	}
	switch {
	case in.Get != nil && in.Put == nil:
		return client.PresignGetObject(ctx, in.Get, optFns...)
	case in.Put != nil && in.Get == nil:
		return client.PresignPutObject(ctx, in.Put, optFns...)
	}
	return nil, &InputError{Op: "GeneratePresignedURL", Problem: "set exactly one of Get and Put"}
}

// GeneratePresignedURL is [Guard.GeneratePresignedURL] through [resilience.S3].
func GeneratePresignedURL(ctx context.Context, client PresignAPI, in PresignInput, optFns ...func(*s3.PresignOptions)) (*v4.PresignedHTTPRequest, error) {
	return Guard{}.GeneratePresignedURL(ctx, client, in, optFns...)
}

var errAway = errors.New("the upstream has failed")

// refusal is the *resilience.OpenError of a breaker that is not closed. Asking
// the breaker itself for admission would take the probe's slot or count a
// refusal, so a breaker of the same name that has just opened, for as long,
// says it instead.
func refusal(b *resilience.Breaker) error {
	s := b.Snapshot()
	if s.State == resilience.Closed {
		return nil
	}
	wait := max(time.Until(s.OpenUntil), time.Millisecond)
	twin, err := resilience.New(s.Name, resilience.Config{FailMax: 1, ResetTimeout: wait, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	cause := s.LastFailure
	if cause == nil {
		cause = errAway
	}
	nothing := func(context.Context) error { return cause }
	_ = twin.Do(context.Background(), nothing)
	return twin.Do(context.Background(), nothing)
}
