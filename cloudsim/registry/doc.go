// Package registry is the cloud's image registry. It implements OCI
// distribution with push and pull, and a token endpoint. The library
// cuelabs.dev/go/oci/ociregistry implements the protocol. This package stores
// the content in files below one folder. Between the protocol and the storage,
// the type backend asks the engine for authorization before every access. Each
// path is parsed only once, so authorization and storage cannot interpret a
// path differently.
//
// A client without a bearer token gets a challenge that names the token
// endpoint, /token. The client sends its password there and gets a bearer token
// with the scopes that it requested and may have. On every use of the token,
// the registry checks the current roles of the token's owner, on the cloud's
// clock.
//
// Repositories share content, and each blob is stored once. A repository serves
// only blobs that a client pushed or mounted into it. A periodic collection
// removes unreferenced content.
package registry
