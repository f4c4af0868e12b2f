package parse

import (
	"bytes"
	"strings"
)

// Kinds of content that never is text.
const (
	blankFile      = "empty"
	imageFile      = "image"
	audioFile      = "audio"
	videoFile      = "video"
	fontFile       = "font"
	executableFile = "executable"
	objectFile     = "object file"
)

// notTextTypes are the media types that never are text, apart from those whose
// first part says so. A book in DjVu is an image that may have text.
var notTextTypes = map[string]string{
	"application/photoshop":                         imageFile,
	"application/vnd.microsoft.icon":                imageFile,
	"application/ogg":                               audioFile,
	"application/vnd.apple.mpegurl":                 audioFile,
	"application/vnd.rn-realmedia-vbr":              videoFile,
	"application/x-shockwave-flash":                 videoFile,
	"application/vnd.ms-fontobject":                 fontFile,
	"application/font-sfnt":                         fontFile,
	"application/x-font-ttf":                        fontFile,
	"application/x-executable":                      executableFile,
	"application/x-elf":                             executableFile,
	"application/x-mach-binary":                     executableFile,
	"application/vnd.microsoft.portable-executable": executableFile,
	"application/wasm":                              executableFile,
	"application/x-object":                          objectFile,
	"application/x-sharedlib":                       objectFile,
	"application/x-coredump":                        objectFile,
	"application/x-archive":                         objectFile,
	"application/x-unix-archive":                    objectFile,
	"application/x-java-applet":                     objectFile,
	"application/x-bytecode.python":                 objectFile,
}

// notTextNames are the extensions of files that never are text, for content
// without a known signature.
var notTextNames = func() map[string]string {
	names := map[string]string{}
	for kind, list := range map[string]string{
		imageFile: ".png .jpg .jpeg .jpe .gif .bmp .ico .cur .tif .tiff .webp .heic .heif .avif .jxl .jp2 .psd .xcf .raw " +
			".cr2 .cr3 .nef .arw .dng .tga .icns .dds .exr .hdr .pcx",
		audioFile:      ".mp3 .wav .flac .ogg .oga .opus .m4a .aac .aif .aiff .wma .mid .midi .amr .ape",
		videoFile:      ".mp4 .m4v .mov .avi .mkv .webm .mpg .mpeg .wmv .flv .3gp .ogv .vob .m2ts .mts",
		fontFile:       ".ttf .otf .ttc .woff .woff2 .eot .pfb .pfm",
		executableFile: ".exe .dll .com .msi .sys .scr .wasm .elf",
		objectFile: ".o .obj .a .lib .so .dylib .ko .class .pyc .pyo .pyd .pdb .ilk .exp .rlib .rmeta .gch .pch .beam .elc " +
			".hi .dyn_o .dyn_hi .nib",
	} {
		for name := range strings.FieldsSeq(list) {
			names[name] = kind
		}
	}
	return names
}()

// notTextType says which kind of content that never is text a media type is; ""
// for any other.
func notTextType(media string) string {
	if media == "image/vnd.djvu" {
		return ""
	}
	first, _, _ := strings.Cut(media, "/")
	switch first {
	case imageFile, audioFile, videoFile, fontFile:
		return first
	}
	return notTextTypes[media]
}

// isBlank holds for a text of white space alone.
func isBlank(text []byte) bool {
	return len(bytes.TrimSpace(bytes.TrimPrefix(text, []byte("\xEF\xBB\xBF")))) == 0
}
