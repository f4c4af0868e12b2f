package pipeline

import (
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/penstock-go/penstock/objectstore"
	"github.com/penstock-go/penstock/pipeline/parse"
)

const (
	// sourceKey is the user metadata that names the document an original is of,
	// percent-encoded: S3 takes ASCII only.
	sourceKey = "penstock-source"
	// metadataBytes is what of S3's 2 KB for user metadata we use; a longer
	// name goes into an object of its own.
	metadataBytes = 1536
	sourceObject  = "source.txt"
)

// keepOriginal puts the content of a document where it stays: under the hashes
// of its id and of itself, so that the same content is put once.
func (r *run) keepOriginal(d *document, in parse.Input) error {
	d.stage = "original"
	defer r.timed("original")()
	metadata := map[string]string{}
	encoded := url.PathEscape(d.id)
	if len(encoded) <= metadataBytes {
		metadata[sourceKey] = encoded
	} else if err := r.put(r.sourceKey(d.id), strings.NewReader(d.id), nil); err != nil {
		return err
	}
	return r.put(r.originalKey(d.id, d.sha), io.NewSectionReader(in.Content, 0, in.Size), metadata)
}

// sourceKey is where the name of a document is kept that is too long for
// metadata.
func (p *Pipeline) sourceKey(document string) string { return p.originalKey(document, sourceObject) }

// put creates an object unless it is there: its key says what is in it.
func (r *run) put(key string, body io.Reader, metadata map[string]string) error {
	err := r.objects.do(r.ctx, "put_object", func() error {
		_, err := r.ObjectGuard.PutObject(r.ctx, r.Objects, &s3.PutObjectInput{
			Bucket: aws.String(r.Bucket), Key: aws.String(key), Body: body,
			IfNoneMatch: aws.String("*"), Metadata: metadata,
		})
		return err
	})
	if err == nil || objectstore.StatusCode(err) == http.StatusPreconditionFailed {
		return nil
	}
	return r.blame(upstreamS3, "original", err)
}
