package wire

import (
	"bytes"
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/proto/client"
)

// splitBuffers splits raw into buffers of n bytes, because gRPC delivers a message in
// several buffers.
func splitBuffers(raw []byte, n int) (out mem.BufferSlice) {
	for len(raw) > n {
		out = append(out, mem.SliceBuffer(raw[:n]))
		raw = raw[n:]
	}
	return append(out, mem.SliceBuffer(raw))
}

func encoded(t testing.TB, p *client.Packet) []byte {
	t.Helper()
	raw, err := proto.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func seeds(t testing.TB) [][]byte {
	data := &client.Packet{Type: client.PacketType_DATA, Payload: &client.Packet_Data{Data: &client.Data{ConnectID: 300, Data: []byte("hello")}}}
	empty := &client.Packet{Type: client.PacketType_DATA, Payload: &client.Packet_Data{Data: &client.Data{ConnectID: 1}}}
	failed := &client.Packet{Type: client.PacketType_DATA, Payload: &client.Packet_Data{Data: &client.Data{ConnectID: 1, Error: "e", Data: []byte("x")}}}
	wrong := &client.Packet{Type: client.PacketType_CLOSE_REQ, Payload: &client.Packet_Data{Data: &client.Data{ConnectID: 7}}}
	req := &client.Packet{Payload: &client.Packet_DialRequest{DialRequest: &client.DialRequest{Protocol: "tcp", Address: "a:1", Random: -5}}}
	all := [][]byte{nil, {0x08}, {0x08, 0x04, 0x22, 0x7f}, {0x08, 0x63}}
	for _, p := range []*client.Packet{data, empty, failed, wrong, req} {
		all = append(all, encoded(t, p))
	}
	// Add a DATA packet with its fields in another order, and a DATA packet with an unknown
	// field.
	all = append(all, append(encoded(t, &client.Packet{Payload: data.Payload}), 0x08, 0x04), append(encoded(t, data), 0x78, 0x01))
	return all
}

// For any input, Codec and protobuf return equal packets, or both return an error. Codec decodes
// most DATA packets without protobuf, with the function cutData.
func FuzzPacket(f *testing.F) {
	for _, s := range seeds(f) {
		f.Add(s, 3)
		f.Add(s, 1<<10)
	}
	f.Fuzz(func(t *testing.T, raw []byte, n int) {
		var m client.Packet
		wantErr := proto.Unmarshal(raw, &m)
		var got Packet
		err := Codec{}.Unmarshal(splitBuffers(raw, min(max(n, 1), 1<<20)), &got)
		if err != nil {
			if wantErr == nil {
				t.Fatalf("Codec refused a valid packet: %v", err)
			}
			return
		}
		if wantErr != nil {
			t.Fatalf("Codec accepted a packet, and protobuf returned %v", wantErr)
		}
		want := fromMessage(&m)
		if got.Type != want.Type || got.ID != want.ID || got.Random != want.Random || got.Protocol != want.Protocol ||
			got.Address != want.Address || got.Error != want.Error || !bytes.Equal(got.Data.Materialize(), want.Data.Materialize()) {
			t.Fatalf("got %+v, want %+v", got, want)
		}
	})
}

func FuzzChunk(f *testing.F) {
	for _, s := range []string{"", "\x00", "\x00data", "\x01", "\x02why", "\x03", "\xff"} {
		f.Add([]byte(s), 1)
	}
	f.Fuzz(func(t *testing.T, raw []byte, n int) {
		var c Chunk
		if err := (Codec{}).Unmarshal(splitBuffers(raw, min(max(n, 1), 1<<20)), &c); err != nil {
			if len(raw) > 0 && raw[0] <= byte(Reset) {
				t.Fatalf("Codec refused a valid chunk: %v", err)
			}
			return
		}
		back, err := Codec{}.Marshal(&c)
		if err != nil || !bytes.Equal(back.Materialize(), raw) {
			t.Fatalf("encoded again: got %q, %v; want %q", back.Materialize(), err, raw)
		}
	})
}

// protobuf can decode all packets that this package encodes.
func TestUpstreamDecodesPackets(t *testing.T) {
	for _, p := range []*Packet{
		DialRequest(-9, "tcp", "a:1"), DialResponse(4, 5), DialFailed(4, "no"), DialClose(3), CloseRequest(2), CloseResponse(2, "gone"), Drain(),
		DataPacket(1<<40, mem.BufferSlice{mem.SliceBuffer("hello "), mem.SliceBuffer("world")}), DataPacket(1, nil),
	} {
		want := *p
		raw, err := Codec{}.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		var m client.Packet
		if err := proto.Unmarshal(raw.Materialize(), &m); err != nil {
			t.Fatalf("%+v: %v", want, err)
		}
		got := fromMessage(&m)
		if got.Type != want.Type || got.ID != want.ID || got.Random != want.Random || got.Error != want.Error ||
			!bytes.Equal(got.Data.Materialize(), want.Data.Materialize()) {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
}
