package console

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
	"sync"
)

//go:embed assets
var embedded embed.FS

// contentPolicy allows only the console's own origin as the source of scripts and styles, and as
// the target of calls. The policy also contains the SHA-256 of the inline script of index.html, so
// a browser runs this script. The directives for Trusted Types prevent scripts from converting text
// to HTML.
const contentPolicy = "default-src 'none'; script-src 'self' 'sha256-GHgfyKVAd4pV/vcQK/4iGcpALDUOIZ+5zgVSUuFKKBg='; style-src 'self'; connect-src 'self'; img-src 'self' data:; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

func setHeaders(h http.Header) {
	h.Set("Content-Security-Policy", contentPolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
}

type asset struct {
	contentType, etag string
	plain, zipped     []byte
}

// loadAssets returns the embedded files by their paths below /console/. The first call
// compresses the files, so a console without viewers never compresses files.
var loadAssets = sync.OnceValues(func() (map[string]asset, error) {
	all := map[string]asset{}
	err := fs.WalkDir(embedded, "assets", func(name string, d fs.DirEntry, err error) error {
		kind := mime.TypeByExtension(path.Ext(name))
		if err != nil || d.IsDir() || kind == "" || path.Ext(name) == ".md" {
			return err
		}
		raw, err := embedded.ReadFile(name)
		if err != nil {
			return err
		}
		if path.Ext(name) == ".js" {
			kind = "text/javascript; charset=utf-8"
		}
		var zipped bytes.Buffer
		w, err := gzip.NewWriterLevel(&zipped, gzip.BestCompression)
		if err != nil {
			return err
		}
		if _, err := w.Write(raw); err != nil {
			return err
		}
		if err := w.Close(); err != nil {
			return err
		}
		sum := sha256.Sum256(raw)
		all[strings.TrimPrefix(name, "assets/")] = asset{kind, `"` + hex.EncodeToString(sum[:8]) + `"`, raw, zipped.Bytes()}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the console's files: %w", err)
	}
	return all, nil
})

func (c *Console) serveAsset(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, "/console/")
	if name == "" {
		name = "index.html"
	}
	all, err := loadAssets()
	if err != nil {
		refuseError(w, err)
		return
	}
	a, ok := all[name]
	if !ok {
		http.NotFound(w, r)
		return
	}
	setHeaders(w.Header())
	h := w.Header()
	h.Set("Content-Type", a.contentType)
	h.Set("ETag", a.etag)
	h.Set("Cache-Control", "no-cache")
	h.Set("Vary", "Accept-Encoding")
	if r.Header.Get("If-None-Match") == a.etag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	body := a.plain
	if acceptsGzip(r) {
		h.Set("Content-Encoding", "gzip")
		body = a.zipped
	}
	_, _ = w.Write(body) // an error means that the browser has closed the connection
}

func acceptsGzip(r *http.Request) bool {
	for e := range strings.SplitSeq(r.Header.Get("Accept-Encoding"), ",") {
		name, quality, _ := strings.Cut(strings.TrimSpace(e), ";")
		if name == "gzip" && strings.ReplaceAll(quality, " ", "") != "q=0" {
			return true
		}
	}
	return false
}
