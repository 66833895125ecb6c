package wire

import (
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/proto/client"
)

// Packet is a packet of upstream's protocol. The struct has the fields of all packet types. The
// field Type determines which fields a packet uses. Unused and missing fields have zero values. A
// receiver must ignore packets of unknown types.
type Packet struct {
	Type     client.PacketType
	ID       int64  // connectID of CLOSE_REQ, CLOSE_RSP, DATA and DIAL_RSP
	Random   int64  // number of the dial: DIAL_REQ, DIAL_RSP, DIAL_CLS
	Protocol string // DIAL_REQ: tcp or udp
	Address  string // DIAL_REQ: host:port
	Error    string // DIAL_RSP, CLOSE_RSP
	// Data is the payload of a DATA packet. After a send, Data belongs to the stream. The
	// receiver of a packet must free Data.
	Data mem.BufferSlice
}

// DialRequest returns a packet that asks for a connection. The argument random is a number that
// identifies the dial. The answer contains the same number.
func DialRequest(random int64, protocol, address string) *Packet {
	return &Packet{Type: client.PacketType_DIAL_REQ, Random: random, Protocol: protocol, Address: address}
}

// DialResponse returns a packet that reports a new connection. All later
// packets of this connection have the same id.
func DialResponse(random, id int64) *Packet {
	return &Packet{Type: client.PacketType_DIAL_RSP, Random: random, ID: id}
}

// DialFailed returns a packet that reports a failed dial and the reason.
func DialFailed(random int64, reason string) *Packet {
	return &Packet{Type: client.PacketType_DIAL_RSP, Random: random, Error: reason}
}

// DialClose returns a packet that cancels a dial.
func DialClose(random int64) *Packet {
	return &Packet{Type: client.PacketType_DIAL_CLS, Random: random}
}

// CloseRequest returns a packet that asks the peer to close a connection.
func CloseRequest(id int64) *Packet { return &Packet{Type: client.PacketType_CLOSE_REQ, ID: id} }

// CloseResponse returns a packet that reports the end of a connection. After a
// normal end, reason is empty.
func CloseResponse(id int64, reason string) *Packet {
	return &Packet{Type: client.PacketType_CLOSE_RSP, ID: id, Error: reason}
}

// Drain returns a packet that reports that the agent will stop soon.
func Drain() *Packet { return &Packet{Type: client.PacketType_DRAIN} }

// DataPacket returns a packet with data. The new packet owns data, so the caller must not free
// data.
func DataPacket(id int64, data mem.BufferSlice) *Packet {
	return &Packet{Type: client.PacketType_DATA, ID: id, Data: data}
}

// Field numbers of client.proto.
const (
	fieldType    protowire.Number = 1
	fieldData    protowire.Number = 4
	fieldConnID  protowire.Number = 1
	fieldPayload protowire.Number = 3
)

// marshal encodes a packet. It does not copy the bytes of a DATA packet.
func (p *Packet) marshal() (mem.BufferSlice, error) {
	if p.Type != client.PacketType_DATA {
		raw, err := proto.Marshal(p.message())
		return mem.BufferSlice{mem.SliceBuffer(raw)}, err
	}
	n := p.Data.Len()
	size := protowire.SizeTag(fieldConnID) + protowire.SizeVarint(uint64(p.ID)) + protowire.SizeTag(fieldPayload) + protowire.SizeBytes(n)
	h := make([]byte, 0, 32)
	h = protowire.AppendTag(h, fieldType, protowire.VarintType)
	h = protowire.AppendVarint(h, uint64(client.PacketType_DATA))
	h = protowire.AppendTag(h, fieldData, protowire.BytesType)
	h = protowire.AppendVarint(h, uint64(size))
	h = protowire.AppendTag(h, fieldConnID, protowire.VarintType)
	h = protowire.AppendVarint(h, uint64(p.ID))
	h = protowire.AppendTag(h, fieldPayload, protowire.BytesType)
	h = protowire.AppendVarint(h, uint64(n))
	return append(mem.BufferSlice{mem.SliceBuffer(h)}, p.Data...), nil
}

func (p *Packet) message() *client.Packet {
	m := &client.Packet{Type: p.Type}
	switch p.Type {
	case client.PacketType_DIAL_REQ:
		m.Payload = &client.Packet_DialRequest{DialRequest: &client.DialRequest{Protocol: p.Protocol, Address: p.Address, Random: p.Random}}
	case client.PacketType_DIAL_RSP:
		m.Payload = &client.Packet_DialResponse{DialResponse: &client.DialResponse{Error: p.Error, ConnectID: p.ID, Random: p.Random}}
	case client.PacketType_CLOSE_REQ:
		m.Payload = &client.Packet_CloseRequest{CloseRequest: &client.CloseRequest{ConnectID: p.ID}}
	case client.PacketType_CLOSE_RSP:
		m.Payload = &client.Packet_CloseResponse{CloseResponse: &client.CloseResponse{Error: p.Error, ConnectID: p.ID}}
	case client.PacketType_DIAL_CLS:
		m.Payload = &client.Packet_CloseDial{CloseDial: &client.CloseDial{Random: p.Random}}
	case client.PacketType_DRAIN:
		m.Payload = &client.Packet_Drain{Drain: &client.Drain{}}
	}
	return m
}

// unmarshal decodes a packet from raw, which belongs to gRPC. The packet keeps references to the
// parts of raw that it needs. If a DATA packet has the usual encoding, unmarshal does not copy its
// bytes.
func (p *Packet) unmarshal(raw mem.BufferSlice) error {
	if id, data, ok := cutData(raw); ok {
		*p = Packet{Type: client.PacketType_DATA, ID: id, Data: data}
		return nil
	}
	var m client.Packet
	buf := raw.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buf.Free()
	if err := proto.Unmarshal(buf.ReadOnlyData(), &m); err != nil {
		return err
	}
	*p = fromMessage(&m)
	return nil
}

// fromMessage reads only the payload for the type of the message. If m contains a payload for
// another type, fromMessage ignores this payload.
func fromMessage(m *client.Packet) Packet {
	p := Packet{Type: m.GetType()}
	switch p.Type {
	case client.PacketType_DIAL_REQ:
		d := m.GetDialRequest()
		p.Protocol, p.Address, p.Random = d.GetProtocol(), d.GetAddress(), d.GetRandom()
	case client.PacketType_DIAL_RSP:
		d := m.GetDialResponse()
		p.Error, p.ID, p.Random = d.GetError(), d.GetConnectID(), d.GetRandom()
	case client.PacketType_CLOSE_REQ:
		p.ID = m.GetCloseRequest().GetConnectID()
	case client.PacketType_CLOSE_RSP:
		p.ID, p.Error = m.GetCloseResponse().GetConnectID(), m.GetCloseResponse().GetError()
	case client.PacketType_DIAL_CLS:
		p.Random = m.GetCloseDial().GetRandom()
	case client.PacketType_DATA:
		p.ID = m.GetData().GetConnectID()
		if data := m.GetData().GetData(); len(data) > 0 {
			p.Data = mem.BufferSlice{mem.SliceBuffer(data)}
		}
	}
	return p
}

// cutData decodes a DATA packet without a copy of its data bytes. The fields must be in the usual
// order, and the data bytes must be the last field. The first buffer must contain all bytes before
// the data bytes. If raw is not a DATA packet of this form, isData is false.
func cutData(raw mem.BufferSlice) (id int64, data mem.BufferSlice, isData bool) {
	if len(raw) == 0 {
		return 0, nil, false
	}
	head := raw[0].ReadOnlyData()
	at := head
	typ, at, isData := varint(at, fieldType)
	if !isData || client.PacketType(typ) != client.PacketType_DATA {
		return 0, nil, false
	}
	size, at, isData := length(at, fieldData)
	if !isData || size != uint64(raw.Len()-(len(head)-len(at))) {
		return 0, nil, false
	}
	conn, at, isData := varint(at, fieldConnID)
	if !isData {
		return 0, nil, false
	}
	size, at, isData = length(at, fieldPayload)
	offset := len(head) - len(at)
	if !isData || size != uint64(raw.Len()-offset) {
		return 0, nil, false
	}
	return int64(conn), skip(raw, offset), true
}

// varint reads the tag and the value of a varint field.
func varint(b []byte, field protowire.Number) (uint64, []byte, bool) {
	rest, ok := tag(b, field, protowire.VarintType)
	if !ok {
		return 0, nil, false
	}
	v, n := protowire.ConsumeVarint(rest)
	if n < 0 {
		return 0, nil, false
	}
	return v, rest[n:], true
}

// length reads the tag and the length of a bytes field. It does not read the bytes of the
// field.
func length(b []byte, field protowire.Number) (uint64, []byte, bool) {
	rest, ok := tag(b, field, protowire.BytesType)
	if !ok {
		return 0, nil, false
	}
	v, n := protowire.ConsumeVarint(rest)
	if n < 0 {
		return 0, nil, false
	}
	return v, rest[n:], true
}

func tag(b []byte, field protowire.Number, typ protowire.Type) ([]byte, bool) {
	num, t, n := protowire.ConsumeTag(b)
	if n < 0 || num != field || t != typ {
		return nil, false
	}
	return b[n:], true
}

// skip returns raw without its first numBytes bytes. The first buffer must
// contain all these bytes. The result holds its own references to the buffers.
func skip(raw mem.BufferSlice, numBytes int) mem.BufferSlice {
	out := make(mem.BufferSlice, 0, len(raw))
	if numBytes < raw[0].Len() {
		_, rest := mem.SplitUnsafe(raw[0], numBytes)
		out = append(out, rest)
	}
	for _, b := range raw[1:] {
		b.Ref()
		out = append(out, b)
	}
	return out
}
