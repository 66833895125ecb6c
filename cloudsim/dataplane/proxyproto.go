package dataplane

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// proxyV2Signature begins every PROXY header of version 2. See PROXY protocol, section 2.2.
const proxyV2Signature = "\r\n\r\n\x00\r\nQUIT\n"

// proxyHeader returns the PROXY header that a target gets before the client's
// first byte. It contains the client's address and the destination. The
// destination is the address to which the client connected. Both addresses have
// the IP family of the client's connection. See The PROXY protocol
// (haproxy.org), versions 1 and 2, sections 2.1 and 2.2.
func proxyHeader(v cloudsim.ProxyProtocol, client, destination netip.AddrPort) []byte {
	src, dst := client.Addr().Unmap().WithZone(""), destination.Addr().Unmap().WithZone("")
	if v == cloudsim.ProxyV1 {
		family := "TCP6"
		if src.Is4() {
			family = "TCP4"
		}
		return fmt.Appendf(nil, "PROXY %s %s %s %d %d\r\n", family, src, dst, client.Port(), destination.Port())
	}
	const proxied, tcp4, tcp6 = 0x21, 0x11, 0x21
	family := byte(tcp6)
	if src.Is4() {
		family = tcp4
	}
	addresses := append(src.AsSlice(), dst.AsSlice()...)
	h := append([]byte(proxyV2Signature), proxied, family)
	h = binary.BigEndian.AppendUint16(h, uint16(len(addresses)+4))
	h = append(h, addresses...)
	h = binary.BigEndian.AppendUint16(h, client.Port())
	return binary.BigEndian.AppendUint16(h, destination.Port())
}
