// Package metadata is the instance metadata service: what an instance asks
// about itself, over plain HTTP, at an address that only it can reach.
//
// A caller first PUTs for a session token, and shows it with every GET. What
// cannot send a PUT with a header of its own, as most forged requests and open
// proxies cannot, gets nothing; and replies have a hop limit of 1, so that they
// do not leave the instance for a container behind a bridge; a kernel that has
// no such limit does without.
//
//	token=$(curl -s -X PUT -H 'Metadata-Token-TTL-Seconds: 300' http://169.254.169.254/v1/token)
//	curl -s -H "Metadata-Token: $token" http://169.254.169.254/v1/instance/id
//
// Which instance is calling is never taken from what it says. Either a
// listener belongs to one instance, as in a network namespace of its own, or
// the source address decides, as on a loopback that instances share. It tells
// an instance about itself and about nobody else.
//
// It keeps no copy: it asks the cloud for every answer, as a client.
package metadata
