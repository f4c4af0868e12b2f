package objectstore

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// A partial download is called ".penstock-<what>-<etag>-<size>.part": a hash of
// the file's name and the object's, the object's ETag in hex and its bytes, -1
// where nobody has said. Its writer holds a lock on it. One that cannot be
// shared or resumed has a random word for its ETag and size.
const (
	partialStart = ".penstock-"
	partialEnd   = ".part"
)

func partialPrefix(in *s3.GetObjectInput, path string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q",
		filepath.Base(path), aws.ToString(in.Bucket), aws.ToString(in.Key), aws.ToString(in.VersionId)))
	return partialStart + hex.EncodeToString(sum[:8]) + "-"
}

func (d *download) partials() []string {
	entries, err := os.ReadDir(filepath.Dir(d.path))
	if err != nil {
		return nil // creating the file will say it
	}
	var names []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), d.prefix) && strings.HasSuffix(e.Name(), partialEnd) {
			names = append(names, filepath.Join(filepath.Dir(d.path), e.Name()))
		}
	}
	return names
}

// resume takes over what an earlier try has left, if nobody else has it.
func (d *download) resume() {
	for _, name := range d.partials() {
		etag, total, ok := objectOf(strings.TrimSuffix(strings.TrimPrefix(filepath.Base(name), d.prefix), partialEnd))
		if !ok {
			continue
		}
		f, err := claim(name, os.O_RDWR)
		if err != nil {
			continue
		}
		if info, err := f.Stat(); err == nil && info.Size() > 0 {
			d.file, d.etag, d.total, d.resumed = f, etag, total, info.Size()
			return
		}
		_ = f.Close()
	}
}

// objectOf reads the ETag and the bytes of the object out of a partial file's
// name.
func objectOf(name string) (etag string, total int64, ok bool) {
	text, size, _ := strings.Cut(name, "-")
	tag, err := hex.DecodeString(text)
	if err != nil {
		return "", 0, false
	}
	total, err = strconv.ParseInt(size, 10, 64)
	return string(tag), total, err == nil
}

// create makes the partial file for an object with that ETag and so many bytes.
func (d *download) create(etag string, total int64) error {
	folder := filepath.Dir(d.path)
	if etag != "" && len(etag) <= 64 {
		name := filepath.Join(folder, fmt.Sprintf("%s%x-%d%s", d.prefix, etag, total, partialEnd))
		if f, err := claim(name, os.O_RDWR|os.O_CREATE); err == nil {
			d.file, d.etag, d.total = f, etag, total
			return nil
		}
	}
	var err error
	for range createTries {
		d.file, err = claim(filepath.Join(folder, d.prefix+"x"+rand.Text()+partialEnd), os.O_RDWR|os.O_CREATE|os.O_EXCL)
		if !errors.Is(err, errTaken) {
			break
		}
	}
	d.etag = ""
	return err
}

// createTries is how many names a new file is tried under: another download
// that sweeps may take one for left behind before it is locked.
const createTries = 100

var errTaken = errors.New("another download has the file")

// claim opens and locks a file. Between the two another download may have
// renamed it: then it is no longer ours to write.
func claim(name string, flags int) (*os.File, error) {
	f, err := os.OpenFile(name, flags, 0o644)
	if err != nil {
		return nil, err
	}
	if err = lock(f); err != nil {
		err = errors.Join(errTaken, err)
	} else if err = same(f, name); err == nil {
		return f, nil
	}
	return nil, errors.Join(err, f.Close())
}

func same(f *os.File, name string) error {
	mine, err := f.Stat()
	if err != nil {
		return err
	}
	there, err := os.Stat(name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(mine, there) {
		return errTaken
	}
	return err
}

// drop throws away what was got so far.
func (d *download) drop() {
	if d.file != nil {
		_ = os.Remove(d.file.Name())
		_ = d.file.Close()
	}
	d.file, d.etag, d.total, d.resumed = nil, "", -1, 0
}

// close lets go of a partial file, and of its bytes where they are no use.
func (d *download) close() {
	if d.file == nil {
		return
	}
	if info, err := d.file.Stat(); d.etag == "" || err == nil && info.Size() == 0 {
		if same(d.file, d.file.Name()) == nil {
			_ = os.Remove(d.file.Name())
		}
	}
	_ = d.file.Close()
}

// sweep removes what dead downloads of the same object to the same file left.
func (d *download) sweep() {
	for _, name := range d.partials() {
		if f, err := claim(name, os.O_RDWR); err == nil {
			_ = os.Remove(name)
			_ = f.Close()
		}
	}
}

func syncFolder(dir string) error {
	if runtime.GOOS == "windows" { // a folder's handle cannot be synced there
		return nil
	}
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
