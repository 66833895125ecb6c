// Package registry is the cloud's image registry. It implements OCI
// distribution with push and pull, and a token endpoint. The library
// cuelabs.dev/go/oci/ociregistry implements the protocol. Package registry
// stores the content in files below one folder. The type backend is between
// them and asks the engine before every access. Each path is parsed only once,
// so authorization and storage cannot interpret a path differently.
//
// A client without a bearer token gets a challenge that names /token. It sends
// its password there and gets a bearer token with the requested and permitted
// scopes. On every use, the registry checks the token again against the current
// roles of its owner, on the cloud's clock.
//
// Repositories share content, and each blob is stored once. A repository serves
// only blobs that a client pushed or mounted into it. A periodic collection
// removes unreferenced content.
package registry
