// Package agent is the side of a network proxy (KEP-1281) that stands where
// the targets are. It calls one or several servers, and dials for them.
//
// A server that knows package wire's extension gives each connection a stream
// of its own; with upstream's server all connections share one stream, and
// those that stand still are cut off so that the others go on.
//
// It listens on nothing.
package agent
