package wire

import "google.golang.org/grpc"

// Names of the methods of ProxyService, AgentService and TunnelService.
const (
	MethodProxy   = "/ProxyService/Proxy"
	MethodConnect = "/AgentService/Connect"
	MethodOpen    = "/cloudsim.netproxy.v1.Tunnel/Open"
	MethodRenew   = "/cloudsim.netproxy.v1.Tunnel/Renew"
)

// Keys of gRPC metadata. This project defines the keys with the prefix x-. Upstream defines the
// other keys.
const (
	KeyServerID         = "serverid"
	KeyServerCount      = "servercount"
	KeyAgentID          = "agentid"
	KeyAgentIdentifiers = "agentidentifiers"
	KeyAuthorization    = "authorization"
	KeyStreams          = "x-tunnel-streams"
	KeySession          = "x-tunnel-session"
	KeyDial             = "x-tunnel-dial"
	KeyZone             = "x-tunnel-zone"
)

// StreamsVersion is the value that peers send with the metadata key KeyStreams.
const StreamsVersion = "1"

// BearerPrefix precedes the token in the value of the metadata key KeyAuthorization.
const BearerPrefix = "Bearer "

// StreamDesc describes the streams of all gRPC methods in this package. A client of a method passes
// StreamDesc to grpc.ClientConn.NewStream.
var StreamDesc = grpc.StreamDesc{ServerStreams: true, ClientStreams: true}

// ProxyService returns the description of the gRPC service for clients of the
// proxy.
func ProxyService(proxy grpc.StreamHandler) *grpc.ServiceDesc {
	return service("ProxyService", map[string]grpc.StreamHandler{"Proxy": proxy})
}

// AgentService returns the description of the gRPC service for all agents.
func AgentService(connect grpc.StreamHandler) *grpc.ServiceDesc {
	return service("AgentService", map[string]grpc.StreamHandler{"Connect": connect})
}

// TunnelService returns the description of the gRPC service for agents that have negotiated the
// extension. The package comment describes the extension.
func TunnelService(open, renew grpc.StreamHandler) *grpc.ServiceDesc {
	return service("cloudsim.netproxy.v1.Tunnel", map[string]grpc.StreamHandler{"Open": open, "Renew": renew})
}

func service(name string, methods map[string]grpc.StreamHandler) *grpc.ServiceDesc {
	d := &grpc.ServiceDesc{ServiceName: name, HandlerType: (*any)(nil)}
	for method, handler := range methods {
		d.Streams = append(d.Streams, grpc.StreamDesc{
			StreamName: method, Handler: handler, ServerStreams: true, ClientStreams: true,
		})
	}
	return d
}
