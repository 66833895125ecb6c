package aws

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
)

// algorithm is the name of the only signature algorithm that the dialect supports.
const algorithm = "AWS4-HMAC-SHA256"

// signatureToken returns the signature of a request as a bearer token for the cloud. It computes
// the hash of the canonical request from the bytes that the server received. See "Create a signed
// AWS API request" in the user guide of AWS Identity and Access Management.
//
// The signature must be in the header Authorization. It must cover the headers Host and X-Amz-Date,
// all other headers X-Amz-*, and the body. If the caller has temporary credentials, the header
// X-Amz-Security-Token contains their session token.
func signatureToken(r *dialect.Request) (string, error) {
	s, headers, err := parseAuthorization(r.Header)
	if err != nil {
		return "", err
	}
	if want := serviceOf(r).signing; s.Service != want {
		return "", coded(http.StatusForbidden, "SignatureDoesNotMatch", "the credential must be scoped to the service "+want+", got "+clip(s.Service))
	}
	raw, err := r.ReadBody()
	if err != nil {
		return "", err
	}
	if s.Hash, err = canonicalHash(r.Request, headers, raw); err != nil {
		return "", err
	}
	if _, ok := cloudsim.ParseSignature(s.Token()); !ok {
		return "", errIncomplete("the credential must be ACCESS-KEY/DATE/REGION/SERVICE/aws4_request with the service in lower case, and the signature must be 64 hex digits in lower case")
	}
	s.SessionToken = r.Header.Get("X-Amz-Security-Token")
	if _, ok := cloudsim.ParseSignature(s.Token()); !ok {
		return "", coded(http.StatusForbidden, "InvalidClientTokenId", "the header X-Amz-Security-Token must be the session token of the access key "+string(s.AccessKey))
	}
	return s.Token(), nil
}

func errIncomplete(msg string) error {
	return coded(http.StatusBadRequest, "IncompleteSignature", "the header Authorization is not valid: "+msg)
}

// parseAuthorization decodes the header Authorization. It returns the signature and the names of
// the signed headers. The fields Hash and SessionToken of the signature are empty.
func parseAuthorization(h http.Header) (s cloudsim.Signature, headers []string, err error) {
	name, rest, _ := strings.Cut(h.Get("Authorization"), " ")
	if name == "" {
		return s, nil, coded(http.StatusForbidden, "MissingAuthenticationToken", "the request must have a signature in the header Authorization")
	}
	if name != algorithm {
		return s, nil, errIncomplete("the algorithm must be " + algorithm)
	}
	parts := map[string]string{}
	for p := range strings.SplitSeq(rest, ",") {
		k, v, _ := strings.Cut(strings.TrimSpace(p), "=")
		if _, twice := parts[k]; twice {
			return s, nil, errIncomplete("it contains " + clip(k) + " twice")
		}
		parts[k] = v
	}
	scope := strings.Split(parts["Credential"], "/")
	if len(parts) != 3 || len(scope) != 5 || scope[4] != "aws4_request" || parts["SignedHeaders"] == "" {
		return s, nil, errIncomplete("it must contain Credential, SignedHeaders and Signature, with the credential ACCESS-KEY/DATE/REGION/SERVICE/aws4_request")
	}
	at := h.Get("X-Amz-Date")
	if s.Time, err = time.Parse(cloudsim.SignatureTime, at); err != nil {
		return s, nil, coded(http.StatusBadRequest, "IncompleteSignature", "the header X-Amz-Date must have the format YYYYMMDDTHHMMSSZ, such as 20261231T235959Z")
	}
	if !strings.HasPrefix(at, scope[1]+"T") {
		return s, nil, coded(http.StatusForbidden, "SignatureDoesNotMatch", "the date of the credential differs from the header X-Amz-Date")
	}
	s.AccessKey, s.Region, s.Service, s.Signature = cloudsim.AccessKeyID(scope[0]), scope[2], scope[3], parts["Signature"]
	return s, strings.Split(parts["SignedHeaders"], ";"), nil
}

// canonicalHash returns the SHA-256 of the canonical request in hex digits. The path must be / and
// the query must be empty. selectCall has checked the path and the query.
func canonicalHash(r *http.Request, headers []string, body []byte) (string, error) {
	for _, must := range append(amzHeaders(r.Header), "host") {
		if !slices.Contains(headers, must) {
			return "", errIncomplete("SignedHeaders must contain " + must)
		}
	}
	sum := sha256.Sum256(body)
	payload := hex.EncodeToString(sum[:])
	if given := r.Header.Get("X-Amz-Content-Sha256"); given != "" && given != payload {
		return "", coded(http.StatusBadRequest, "XAmzContentSHA256Mismatch", "the header X-Amz-Content-Sha256 differs from the hash of the body")
	}
	var b strings.Builder
	b.WriteString(r.Method + "\n/\n\n")
	for _, name := range headers {
		b.WriteString(name + ":" + headerValue(r, name) + "\n")
	}
	b.WriteString("\n" + strings.Join(headers, ";") + "\n" + payload)
	sum = sha256.Sum256([]byte(b.String()))
	return hex.EncodeToString(sum[:]), nil
}

func amzHeaders(h http.Header) (names []string) {
	for name := range h {
		if lower := strings.ToLower(name); strings.HasPrefix(lower, "x-amz-") {
			names = append(names, lower)
		}
	}
	return names
}

// headerValue returns the value of a header in the form that a canonical request contains. It reads
// the header Host from r.Host, because the package net/http removes this header from r.Header.
func headerValue(r *http.Request, name string) string {
	switch name {
	case "host":
		return r.Host
	case "content-length":
		return strconv.FormatInt(r.ContentLength, 10)
	}
	var values []string
	for _, v := range r.Header.Values(name) {
		values = append(values, strings.Join(strings.Fields(v), " "))
	}
	return strings.Join(values, ",")
}
