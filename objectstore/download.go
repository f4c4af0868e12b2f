package objectstore

import (
	"cmp"
	"context"
	"crypto/md5"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/penstock-go/penstock/internal/door"
)

// hashKey is the metadata in which UploadFile keeps the content's SHA-256, in
// hex, and where DownloadFile looks for it.
const hashKey = "sha256"

// DownloadFileOutput is what a download brought.
type DownloadFileOutput struct {
	ETag     string
	Size     int64  // bytes of the file
	Resumed  int64  // of those, the bytes that an earlier try had left
	SHA256   string // of the content, in hex
	Metadata map[string]string
}

// DownloadFile gets an object into the file at path. The bytes go to a hidden
// file in the same folder, which is checked, synced and renamed when it is
// whole: until then path is what it was before, also after a kill. Checked are
// the range and the size, the MD5 where the ETag is one, and the SHA-256 where
// the object's metadata has one (UploadFile puts it there); a difference is a
// *ContractError, as is a part of the object that was not asked for.
//
// Where path is a symbolic link, the file that it leads to is written, in that
// file's folder, and the link stays. A folder, a device or a pipe is an
// *InputError.
//
// A try that fails leaves what it got. The next one asks for the rest, if the
// object is still the same, and starts over if it is not. Two downloads to one
// path do not disturb each other. in.Range and in.PartNumber must be nil.
func (g Guard) DownloadFile(
	ctx context.Context, client Reader, in *s3.GetObjectInput, path string, optFns ...func(*s3.Options),
) (*DownloadFileOutput, error) {
	const op = "DownloadFile"
	if _, err := subject(op, in); err != nil {
		return nil, err
	}
	if in.Range != nil || in.PartNumber != nil {
		return nil, &InputError{op, "a file is downloaded whole: leave Range and PartNumber out"}
	}
	path, err := landing(path)
	if err != nil {
		return nil, err
	}
	d := &download{
		guard: g, client: client, in: in, path: path, optFns: once(optFns), total: -1, prefix: partialPrefix(in, path),
	}
	defer d.close()
	d.resume()
	out, err := d.run(ctx)
	if d.changed(err) { // the object is another one by now
		d.drop()
		out, err = d.run(ctx)
	}
	if err != nil {
		return nil, err
	}
	return out, d.publish()
}

// maxLinks is how many symbolic links may lead to a file, which is Linux's own
// limit.
const maxLinks = 40

// landing is the file to write for path: itself, or what symbolic links lead
// to, which need not exist.
func landing(path string) (string, error) {
	at := path
	for range maxLinks {
		info, err := os.Lstat(at)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return at, vacant(path, at)
		case err != nil:
			return "", &localError{fmt.Errorf("objectstore: cannot download to %q: %w", path, err)}
		case info.Mode()&fs.ModeSymlink == 0:
			return at, writable(path, info)
		}
		if at, err = follow(at); err != nil {
			return "", &localError{fmt.Errorf("objectstore: cannot download to %q: %w", path, err)}
		}
	}
	return "", &InputError{"DownloadFile", fmt.Sprintf("the symbolic link %q leads to no file, but in a circle", path)}
}

// vacant refuses a place where no file can be made.
func vacant(path, at string) error {
	if at == "" || os.IsPathSeparator(at[len(at)-1]) {
		return &InputError{"DownloadFile", fmt.Sprintf("%q does not name a file", path)}
	}
	if _, err := os.Stat(filepath.Dir(at)); err != nil {
		return &localError{fmt.Errorf("objectstore: cannot download to %q: %w", path, err)}
	}
	return nil
}

// follow is where a symbolic link points. The folders of a target may be links
// too, so ".." in it is left to the file system.
func follow(link string) (string, error) {
	to, err := os.Readlink(link)
	if err != nil {
		return "", err
	}
	if !filepath.IsAbs(to) {
		dir, _ := filepath.Split(link)
		to = dir + to
	}
	dir, name := filepath.Split(to)
	if name == "" || name == "." || name == ".." {
		return to, nil
	}
	if dir, err = filepath.EvalSymlinks(cmp.Or(dir, ".")); err != nil {
		return "", err
	}
	return filepath.Join(dir, name), nil
}

// writable refuses what is there and cannot be replaced by a file.
func writable(path string, info fs.FileInfo) error {
	switch {
	case info.IsDir():
		return &InputError{"DownloadFile", fmt.Sprintf("%q is a folder; name the file in it", path)}
	case !info.Mode().IsRegular():
		return &InputError{"DownloadFile", fmt.Sprintf("%q is not a regular file; use GetObject", path)}
	}
	return nil
}

// DownloadFile is [Guard.DownloadFile] through [resilience.S3].
func DownloadFile(
	ctx context.Context, client Reader, in *s3.GetObjectInput, path string, optFns ...func(*s3.Options),
) (*DownloadFileOutput, error) {
	return Guard{}.DownloadFile(ctx, client, in, path, optFns...)
}

type download struct {
	guard  Guard
	client Reader
	in     *s3.GetObjectInput
	path   string
	optFns []func(*s3.Options)
	prefix string

	file    *os.File // the partial file, locked
	etag    string   // of the object whose bytes it has; "" where it cannot be resumed
	total   int64    // the object's bytes; negative where nobody has said
	resumed int64
}

var errChanged = errors.New("the object changed while it was downloaded")

// changed reports whether a resumed download found another object.
func (d *download) changed(err error) bool {
	s := StatusCode(err)
	return d.resumed > 0 && (errors.Is(err, errChanged) ||
		s == http.StatusPreconditionFailed || s == http.StatusRequestedRangeNotSatisfiable)
}

func (d *download) run(ctx context.Context) (*DownloadFileOutput, error) {
	t := about("GetObject", d.in.Bucket, d.in.Key)
	return open(ctx, d.guard, t, func(h *door.Handle) (*DownloadFileOutput, error) {
		in := *d.in
		if d.resumed > 0 {
			in.Range, in.IfMatch = aws.String(fmt.Sprintf("bytes=%d-", d.resumed)), aws.String(d.etag)
		}
		got, err := openObject(h.Context(), d.client, &in, d.optFns)
		if err != nil {
			return nil, err
		}
		if got.Body == nil {
			return nil, d.broken("the answer has no body")
		}
		defer got.Body.Close()
		return d.receive(h, got)
	})
}

func (d *download) receive(h *door.Handle, got *s3.GetObjectOutput) (*DownloadFileOutput, error) {
	if d.resumed > 0 && aws.ToString(got.ETag) != d.etag {
		return nil, &localError{errChanged}
	}
	start, total, problem := extent(got, d.resumed)
	if start > 0 && d.total >= 0 && total != d.total {
		problem = fmt.Sprintf("the object had %d bytes and has %d, and its ETag is the same", d.total, total)
	}
	if problem != "" {
		d.drop() // the next try asks for the whole
		return nil, d.broken(problem)
	}
	if err := d.place(got, start, total); err != nil {
		return nil, &localError{err}
	}
	if err := d.write(h, got.Body, total-start); err != nil {
		return nil, err
	}
	return d.verify(h, got, total)
}

// place has the partial file ready to take the bytes from start on.
func (d *download) place(got *s3.GetObjectOutput, start, total int64) error {
	if d.file == nil {
		if err := d.create(aws.ToString(got.ETag), total); err != nil {
			return fmt.Errorf("objectstore: cannot make a file beside %q: %w", d.path, err)
		}
	}
	d.resumed = start
	if err := d.file.Truncate(start); err != nil {
		return err
	}
	_, err := d.file.Seek(start, io.SeekStart)
	return err
}

// write takes the body, of which left bytes were announced; negative where
// nothing was.
func (d *download) write(h *door.Handle, body io.Reader, left int64) error {
	announced := left >= 0
	buf := make([]byte, 64<<10)
	for {
		n, err := body.Read(buf)
		if left -= int64(n); announced && left < 0 {
			d.drop()
			return d.broken("more bytes came than were announced")
		}
		if n > 0 {
			h.Renew()
			if _, err := d.file.Write(buf[:n]); err != nil {
				return &localError{fmt.Errorf("objectstore: cannot write the download of %q: %w", d.path, err)}
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// verify reads the file back, so that bytes of an earlier try are covered too.
func (d *download) verify(h *door.Handle, got *s3.GetObjectOutput, total int64) (*DownloadFileOutput, error) {
	md5sum, sha := md5.New(), sha256.New()
	if _, err := d.file.Seek(0, io.SeekStart); err != nil {
		return nil, &localError{err}
	}
	size, err := io.Copy(io.MultiWriter(md5sum, sha), renewing{d.file, h})
	if err != nil {
		return nil, &localError{fmt.Errorf("objectstore: cannot read back the download of %q: %w", d.path, err)}
	}
	out := &DownloadFileOutput{
		ETag: aws.ToString(got.ETag), Size: size, Resumed: d.resumed,
		SHA256: hex.EncodeToString(sha.Sum(nil)), Metadata: got.Metadata,
	}
	if problem := mismatch(got, out, total, hex.EncodeToString(md5sum.Sum(nil))); problem != "" {
		d.drop() // it is wrong, so nothing of it may be resumed
		return nil, d.broken(problem)
	}
	return out, nil
}

// renewing renews a probe's lease with each read, and ends with its call.
type renewing struct {
	r io.Reader
	h *door.Handle
}

func (r renewing) Read(p []byte) (int, error) {
	if err := r.h.Context().Err(); err != nil {
		return 0, ended(r.h.Context(), err)
	}
	r.h.Renew()
	return r.r.Read(p)
}

func mismatch(got *s3.GetObjectOutput, out *DownloadFileOutput, total int64, md5sum string) string {
	if total >= 0 && out.Size != total {
		return "the object has " + strconv.FormatInt(total, 10) + " bytes, " + strconv.FormatInt(out.Size, 10) + " came"
	}
	if want := got.Metadata[hashKey]; len(want) == hex.EncodedLen(sha256.Size) && !strings.EqualFold(want, out.SHA256) {
		return "its SHA-256 is " + out.SHA256 + ", its metadata says " + want
	}
	plain := plain(got.ServerSideEncryption, got.SSECustomerAlgorithm)
	if want, ok := md5Of(got.ETag); ok && plain && want != md5sum {
		return "its MD5 is " + md5sum + ", its ETag says " + want
	}
	return ""
}

func (d *download) broken(problem string) error {
	return &ContractError{"GetObject", aws.ToString(d.in.Bucket), aws.ToString(d.in.Key), problem}
}

// publish brings the file to the disk and gives it its name.
func (d *download) publish() error {
	err := d.file.Sync()
	if err == nil {
		err = os.Rename(d.file.Name(), d.path)
	}
	if err == nil {
		err = syncFolder(filepath.Dir(d.path))
	}
	if err != nil {
		return fmt.Errorf("objectstore: cannot finish the download of %q: %w", d.path, err)
	}
	d.sweep()
	return nil
}
