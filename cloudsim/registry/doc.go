// Package registry is the cloud's image registry. Clients push and pull images with the protocol of
// the OCI distribution specification, and get bearer tokens at a token endpoint. The library
// cuelabs.dev/go/oci/ociregistry implements the protocol. This package stores the content in files
// below one folder. The library calls the type backend, which reads and writes these files. Before
// every access, backend asks the engine for authorization. The library parses the path of a request
// once, and the engine and the storage get the same result. So the storage opens only the
// repository that the engine has permitted.
//
// A client without a bearer token gets a challenge that names the token
// endpoint, /token. The client sends its password to this endpoint. The answer
// is a bearer token for the requested actions that the client's roles permit.
// On every use of the token, the registry checks that the token has not expired
// on the cloud's clock. It also checks that the present roles of the token's
// owner permit the access.
//
// Repositories share content, and the storage keeps each blob once. But a repository
// serves only blobs that a client pushed or mounted into this repository. A
// periodic collection removes unreferenced content.
package registry
