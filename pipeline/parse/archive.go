package parse

import (
	"archive/tar"
	"bytes"
	"compress/bzip2"
	"compress/gzip"
	"context"
	"io"
	"path"
	"strings"

	"github.com/penstock-go/penstock/pipeline/block"
)

// parseZip reads the files in a zip, each by its own parser, under one budget.
// Nothing is written anywhere; links are not followed.
func (r *Registry) parseZip(ctx context.Context, in Input, emit func(block.Block) error) error {
	z, err := openPackage(in)
	if err != nil {
		return err
	}
	inner, err := in.budget.inside()
	if err != nil {
		return err
	}
	for _, f := range z.order {
		if !f.Mode().IsRegular() || isJunk(f.Name) {
			continue
		}
		content, err := readZipFile(f, inner)
		if err := readMember(ctx, r, inner, f.Name, content, err, emit); err != nil {
			return err
		}
	}
	return nil
}

// readMember hands a member to its parser. One that cannot be unpacked is
// noted, unless the budget is spent.
func readMember(ctx context.Context, r *Registry, b *budget, name string, content []byte, err error,
	emit func(block.Block) error,
) error {
	name = memberName(name)
	if err == nil {
		in := FromBytes(name, content)
		in.budget = b
		return r.member(ctx, in, emit)
	}
	if kindOf(err) == TooLarge {
		return err
	}
	return emit(block.Block{Kind: block.Note, Text: err.Error(), Section: name})
}

// memberName is a name that does not lead out of the archive.
func memberName(name string) string {
	return strings.TrimPrefix(path.Clean("/"+strings.ReplaceAll(name, `\`, "/")), "/")
}

// isJunk holds for what file managers leave in archives.
func isJunk(name string) bool {
	base := path.Base(name)
	return strings.HasPrefix(name, "__MACOSX/") || base == ".DS_Store" || base == "Thumbs.db"
}

// parseTar reads the files in a tar archive.
func (r *Registry) parseTar(ctx context.Context, in Input, emit func(block.Block) error) error {
	inner, err := in.budget.inside()
	if err != nil {
		return err
	}
	files := tar.NewReader(io.NewSectionReader(in.Content, 0, in.Size))
	for {
		header, err := files.Next()
		if err == io.EOF { //nolint:errorlint // an error that wraps it is the reader's
			return nil
		}
		if err != nil {
			return err
		}
		if header.Typeflag != tar.TypeReg || isJunk(header.Name) {
			continue
		}
		content, err := io.ReadAll(inner.reader(files, 0))
		if err := readMember(ctx, r, inner, header.Name, content, err, emit); err != nil {
			return err
		}
	}
}

// parsePacked reads a file that is compressed by itself, as "notes.txt.gz" or
// "docs.tar.gz".
func (r *Registry) parsePacked(ctx context.Context, in Input, emit func(block.Block) error) error {
	inner, err := in.budget.inside()
	if err != nil {
		return err
	}
	packed, err := unpacker(in)
	if err != nil {
		return err
	}
	content, err := io.ReadAll(inner.reader(packed, in.Size))
	if err != nil {
		return err
	}
	unpacked := FromBytes(unpackedName(in.Name), content)
	unpacked.budget = inner
	return r.parseMember(ctx, unpacked, emit)
}

func unpacker(in Input) (io.Reader, error) {
	magic := make([]byte, 2)
	if _, err := in.Content.ReadAt(magic, 0); err != nil && err != io.EOF {
		return nil, err
	}
	body := io.NewSectionReader(in.Content, 0, in.Size)
	if bytes.Equal(magic, []byte("BZ")) {
		return bzip2.NewReader(body), nil
	}
	return gzip.NewReader(body)
}

func unpackedName(name string) string {
	lower := strings.ToLower(name)
	if strings.HasSuffix(lower, ".tgz") {
		return name[:len(name)-len(".tgz")] + ".tar"
	}
	for _, ext := range []string{".gz", ".bz2"} {
		if strings.HasSuffix(lower, ext) {
			return name[:len(name)-len(ext)]
		}
	}
	return name
}
