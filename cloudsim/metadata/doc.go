// Package metadata is the instance metadata service. An instance reads its own metadata with plain
// HTTP.
//
// A caller first gets a session token with PUT, and sends the token with every GET. The token
// protects against an attacker that makes a program or an open proxy on the instance send requests.
// This attacker usually cannot send a PUT with a custom header. Replies have a hop limit of 1, so
// that a container behind a bridge on the instance cannot receive the replies. If the kernel does
// not support this limit, the service runs without the limit.
//
//	token=$(curl -s -X PUT -H 'Metadata-Token-TTL-Seconds: 300' http://169.254.169.254/v1/token)
//	curl -s -H "Metadata-Token: $token" http://169.254.169.254/v1/instance/id
//
// The service does not trust the identity that a caller claims in a request. If Config.Instance is
// set, the service treats every caller as this instance. The listener must then be at an address
// that only this instance can reach. If Config.Instance is empty, the source address of the
// connection identifies the instance. The service gives an instance no data about other instances.
//
// The service keeps no copy of the metadata. It reads every answer from the cloud.
package metadata
