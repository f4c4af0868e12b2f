package main

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/bucket"
	"github.com/penstock-go/penstock/internal/upstreams"
)

// keysOfBucket lists all keys below a prefix.
func keysOfBucket(t *testing.T, client *s3.Client, name, prefix string) (keys []string) {
	t.Helper()
	pages := s3.NewListObjectsV2Paginator(client, &s3.ListObjectsV2Input{Bucket: &name, Prefix: &prefix})
	for pages.HasMorePages() {
		page, err := pages.NextPage(t.Context())
		require.NoError(t, err)
		for _, object := range page.Contents {
			keys = append(keys, aws.ToString(object.Key))
		}
	}
	return keys
}

// age moves an original to the key that an earlier version gave it.
func age(t *testing.T, client *s3.Client, name, key string) {
	t.Helper()
	parts := strings.Split(key, "/")
	require.Len(t, parts, 4)
	from := url.URL{Path: name + "/" + key}
	_, err := client.CopyObject(t.Context(), &s3.CopyObjectInput{
		Bucket: &name, CopySource: aws.String(from.EscapedPath()),
		Key: aws.String(strings.Join([]string{parts[0], parts[2], parts[3]}, "/")),
	})
	require.NoError(t, err)
	remove(t, client, name, key)
}

func remove(t *testing.T, client *s3.Client, name, key string) {
	t.Helper()
	_, err := client.DeleteObject(t.Context(), &s3.DeleteObjectInput{Bucket: &name, Key: &key})
	require.NoError(t, err)
}

// Two machines with embedded vectors keep their originals in one bucket: the
// deletions of one leave those of the other, which verify lists, copies and
// restores in the real object store.
func TestOriginalsInARealBucket(t *testing.T) {
	const documents = 1100 // more than a page
	name, client := bucketOf(t)
	env := atS3(upstreams.SeaweedFS(t), name)
	one, two := newCommand(t, env...), newCommand(t, env...)
	for _, c := range []*command{one, two} {
		for i := range documents {
			c.write(t, fmt.Sprintf("docs/note%04d.txt", i), fmt.Sprintf("Note %d: valve %d.", i, i*13))
		}
		o := c.ingest(t, "docs")
		require.Zero(t, o.code, o.stdout+o.stderr)
	}
	require.Len(t, keysOfBucket(t, client, name, "originals/"), 2*documents)
	o := one.ingest(t, "delete", "docs/")
	require.Zero(t, o.code, o.stdout+o.stderr)
	assert.Equal(t, documents, o.summary.Deleted)
	assert.Zero(t, o.summary.OriginalsLeft)
	keys := keysOfBucket(t, client, name, "originals/")
	require.Len(t, keys, documents, "those of the other machine")
	o = two.run(t, "verify", "--deep")
	require.Zero(t, o.code, o.stdout+o.stderr)
	assert.Contains(t, o.stdout, fmt.Sprintf("%d originals in %s/originals/", documents, name))

	for i, key := range keys[:100] {
		if i%2 == 0 {
			age(t, client, name, key)
		} else {
			remove(t, client, name, key)
		}
	}
	bucket.Put(t, client, name, keys[100], "not what was there")
	bucket.Put(t, client, name, keys[101], strings.Repeat("x", len("Note 0: valve 0.")))
	o = two.run(t, "verify", "--deep")
	assert.Equal(t, exitData, o.code, o.stdout+o.stderr)
	assert.Contains(t, o.stdout, ": 50 lost, 2 damaged, 0 orphaned, 50 elsewhere\n")
	o = two.run(t, "verify", "--repair", "--deep")
	require.Zero(t, o.code, o.stdout+o.stderr)
	left := slices.DeleteFunc(keysOfBucket(t, client, name, "originals/"), func(key string) bool {
		return strings.Count(key, "/") == 2
	})
	assert.Equal(t, keys, left)
	o = two.run(t, "verify", "--deep")
	require.Zero(t, o.code, o.stdout+o.stderr)
	assert.Contains(t, o.stdout, ": 0 lost, 0 damaged, 0 orphaned, 0 elsewhere\n")

	o = two.ingest(t, "delete", "docs/")
	assert.Equal(t, 50, o.summary.OriginalsLeft)
	assert.Len(t, keysOfBucket(t, client, name, "originals/"), 50)
}

// Without a journal the real object store is asked for an original before it is
// sent: one that is whole stays, and one that lost bytes is replaced.
func TestOriginalsWithoutAJournalInARealBucket(t *testing.T) {
	name, client := bucketOf(t)
	c := newCommand(t, atS3(upstreams.SeaweedFS(t), name)...)
	c.write(t, "docs/a.txt", "A document about pumps.")
	require.Zero(t, c.ingest(t, "docs").code)
	keys := keysOfBucket(t, client, name, "originals/")
	require.Len(t, keys, 1)
	bucket.Put(t, client, name, keys[0], "A docu")
	require.NoError(t, os.Remove(c.path(".penstock", "journal.db")))
	o := c.ingest(t, "docs")
	require.Zero(t, o.code, o.stdout+o.stderr)
	o = c.run(t, "verify", "--deep")
	require.Zero(t, o.code, o.stdout+o.stderr)
	assert.Equal(t, keys, keysOfBucket(t, client, name, "originals/"))
}

// What an earlier version kept belongs to nobody: it is copied by a repair,
// left by a deletion, and the output says what to do about it.
func TestOriginalsOfAnEarlierVersion(t *testing.T) {
	c := newCommand(t)
	c.write(t, "docs/a.md", "Valve seven is open.")
	c.write(t, "docs/b.md", "Valve eight is shut.")
	require.Zero(t, c.ingest(t, "docs").code)
	originals := c.path(".penstock", "objects", "penstock", "originals")
	folders, err := filepath.Glob(filepath.Join(originals, "*", "*"))
	require.NoError(t, err)
	require.Len(t, folders, 2)
	for _, folder := range folders {
		require.NoError(t, os.Rename(folder, filepath.Join(originals, filepath.Base(folder))))
	}
	require.NoError(t, os.Remove(filepath.Dir(folders[0])))

	o := c.run(t, "verify")
	assert.Zero(t, o.code)
	assert.Contains(t, o.stdout, "original elsewhere  docs/a.md\n")
	assert.Contains(t, o.stdout, "'ingest verify --repair' copies them")
	o = c.run(t, "delete", "docs/a.md")
	assert.Zero(t, o.code)
	assert.Contains(t, o.stdout, "\noriginals left: 1; ")
	o = c.run(t, "verify", "--repair")
	assert.Zero(t, o.code)
	assert.Contains(t, o.stdout, "original elsewhere  docs/b.md (repaired)\n")
	assert.Contains(t, o.stdout, "\n1 original copied ")
	o = c.run(t, "verify", "--deep")
	assert.Zero(t, o.code, o.stdout)
	assert.NotContains(t, o.stdout, "docs/")
}
