// Package registry is the cloud's image registry: OCI distribution, push and
// pull, behind a token endpoint. Protocol and storage are apart: the protocol
// is cuelabs.dev/go/oci/ociregistry, the storage is files below one folder, and
// between them stands backend, which asks the engine before every access. No
// path is parsed twice, so none can mean one thing to who guards it and another
// to who serves it.
//
// A client without a bearer token is sent to /token with its password, and
// comes back with a bearer that says what was asked and allowed. Every use of
// it is checked again against the roles of its owner, on the cloud's clock.
//
// Content is shared between repositories and kept once; a repository answers
// only for what was pushed or mounted into it. What nothing refers to is
// collected after a while.
package registry
