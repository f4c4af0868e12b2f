package objectstore

import (
	"context"
	"io"
	"slices"

	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// presigner is the part of *s3.PresignClient that GeneratePresignedURL needs.
type presigner interface {
	PresignGetObject(
		ctx context.Context, in *s3.GetObjectInput, optFns ...func(*s3.PresignOptions),
	) (*v4.PresignedHTTPRequest, error)
	PresignPutObject(
		ctx context.Context, in *s3.PutObjectInput, optFns ...func(*s3.PresignOptions),
	) (*v4.PresignedHTTPRequest, error)
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
// that is unavailable. What PutObject and GetObject refuse with an *InputError
// is refused here too.
func (g Guard) GeneratePresignedURL(
	ctx context.Context, client presigner, in PresignInput, optFns ...func(*s3.PresignOptions),
) (*v4.PresignedHTTPRequest, error) {
	if err := g.through().Breaker.Check(ctx); err != nil {
		return nil, err
	}
	optFns = append(slices.Clip(optFns), s3.WithPresignClientFromClientOptions(looked))
	switch {
	case in.Get != nil && in.Put == nil:
		if _, err := subject("GetObject", in.Get); err != nil {
			return nil, err
		}
		return client.PresignGetObject(ctx, in.Get, optFns...)
	case in.Put != nil && in.Get == nil:
		if err := signable(in.Put); err != nil {
			return nil, err
		}
		return client.PresignPutObject(ctx, in.Put, optFns...)
	}
	return nil, &InputError{Op: "GeneratePresignedURL", Problem: "set exactly one of Get and Put"}
}

// signable refuses what PutObject refuses before it makes a request.
func signable(in *s3.PutObjectInput) error {
	t, err := subject("PutObject", in)
	if err == nil {
		err = checkMetadata(t.op, in.Metadata)
	}
	if err != nil {
		return err
	}
	body, ok := in.Body.(io.ReadSeeker)
	if !ok || !seeks(body) {
		return nil
	}
	sent, err := newSentBody(nil, body)
	if err != nil {
		return err
	}
	return sent.announced(in.ContentLength)
}

// GeneratePresignedURL is [Guard.GeneratePresignedURL] through [resilience.S3].
func GeneratePresignedURL(
	ctx context.Context, client presigner, in PresignInput, optFns ...func(*s3.PresignOptions),
) (*v4.PresignedHTTPRequest, error) {
	return Guard{}.GeneratePresignedURL(ctx, client, in, optFns...)
}
