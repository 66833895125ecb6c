// Package registry is the cloud's image registry. Clients push and pull images with the protocol of
// the OCI distribution specification. The library cuelabs.dev/go/oci/ociregistry implements the
// protocol, and calls the type backend. Before every access, backend asks the engine for
// authorization. Then it reads or writes files below one folder. The library parses the path of a
// request once, and the engine and the storage get the same result. So the storage opens only the
// repository that the engine has permitted.
//
// A client without a bearer token gets a challenge that names the token endpoint, /token. The
// client sends its password to this endpoint. The answer is a bearer token for the requested
// actions that the client's roles permit. On every use of the token, the registry checks the
// token's expiry on the cloud's clock, and the present roles of the token's owner.
//
// Repositories share content, and the storage keeps each blob once. But a repository serves only
// blobs that a client pushed or mounted into this repository. A periodic collection removes
// unreferenced content.
package registry
