// Package metadata is the instance metadata service. An instance reads its own metadata
// with plain HTTP, at an address that only this instance can reach.
//
// A caller first gets a session token with PUT, and sends the token with every GET. An
// attacker that forges requests, or uses an open proxy, usually cannot send a PUT with a
// custom header. Such an attacker therefore gets no token. Replies have a hop limit of 1,
// so that a container behind a bridge on the instance cannot receive the replies. If the
// kernel does not support such a limit, the service runs without the limit.
//
//	token=$(curl -s -X PUT -H 'Metadata-Token-TTL-Seconds: 300' http://169.254.169.254/v1/token)
//	curl -s -H "Metadata-Token: $token" http://169.254.169.254/v1/instance/id
//
// The service does not trust the identity that a caller claims in a request. If a listener is in
// the network namespace of an instance, all requests to this listener come from this instance. If
// several instances share a loopback interface, the source address of the connection identifies the
// instance. The service gives an instance no data about other instances.
//
// The service keeps no copy of the metadata. It reads every answer from the cloud.
package metadata
