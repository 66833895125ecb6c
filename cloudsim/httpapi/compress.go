package httpapi

import (
	"compress/gzip"
	"net/http"

	"github.com/klauspost/compress/gzhttp"
)

// minCompressed is the smallest size in bytes of an answer that the API compresses. For smaller
// answers, the time for the compression is not worthwhile. kube-apiserver uses the same size.
const minCompressed = 128 << 10

// compressAnswers compresses large JSON answers to GET requests with gzip, if the caller accepts
// gzip. It does not change watches, because each line of a watch must arrive at once.
func compressAnswers(next http.Handler) http.Handler {
	wrap, _ := gzhttp.NewWrapper( // the options are valid
		gzhttp.MinSize(minCompressed), gzhttp.ContentTypes([]string{"application/json"}), gzhttp.EnableZstd(false), gzhttp.CompressionLevel(gzip.BestSpeed))
	zipped := wrap(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && !isWatchPath(r.URL.Path) {
			zipped.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}
