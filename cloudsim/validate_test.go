package cloudsim

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestValidateNamesTheField(t *testing.T) {
	good := LoadBalancerSpec{
		Listeners:   []Listener{{Protocol: TCP, Port: 80, TargetPort: 30080}},
		Targets:     []Target{{Instance: "i-000001"}},
		HealthCheck: HealthCheck{Protocol: HealthTCP},
	}
	with := func(change func(*LoadBalancerSpec)) CreateLoadBalancer {
		s := good
		s.Listeners, s.Targets = slices.Clone(s.Listeners), slices.Clone(s.Targets)
		change(&s)
		return CreateLoadBalancer{Name: "lb", Region: "sim-1", LoadBalancerSpec: s}
	}
	many := func(n int) []Target {
		all := make([]Target, n)
		for i := range all {
			all[i].Instance = InstanceID(fmt.Sprint(i))
		}
		return all
	}
	long := strings.Repeat("x", 64)
	for name, tc := range map[string]struct {
		req   interface{ Validate() error }
		field string // "" means valid
	}{
		"instance":               {CreateInstance{Name: "a", Zone: "z", Type: "t"}, ""},
		"instance without name":  {CreateInstance{Zone: "z", Type: "t"}, "name"},
		"instance upper case":    {CreateInstance{Name: "A", Zone: "z", Type: "t"}, "name"},
		"instance name too long": {CreateInstance{Name: long, Zone: "z", Type: "t"}, "name"},
		"instance name newline":  {CreateInstance{Name: "a\n", Zone: "z", Type: "t"}, "name"},
		"instance without zone":  {CreateInstance{Name: "a", Type: "t"}, "zone"},
		"listener targets": {with(func(s *LoadBalancerSpec) {
			s.Listeners[0].Targets = []Target{{Instance: "i-1"}, {Instance: "i-2"}}
			s.Listeners[0].HealthCheck = &HealthCheck{Protocol: HealthHTTP, Path: "/"}
		}), ""},
		"listener target twice": {with(func(s *LoadBalancerSpec) {
			s.Listeners[0].Targets = []Target{{Instance: "i-1"}, {Instance: "i-1"}}
		}), "listeners[0].targets[1].instance"},
		"listener health path": {with(func(s *LoadBalancerSpec) {
			s.Listeners[0].HealthCheck = &HealthCheck{Protocol: HealthHTTP, Path: "x"}
		}), "listeners[0].healthCheck.path"},
		"targets of all listeners": {with(func(s *LoadBalancerSpec) {
			s.Listeners[0].Targets = many(MaxTargets)
		}), "listeners[0].targets"},
		"targets of all health checks": {with(func(s *LoadBalancerSpec) {
			s.Targets = many(MaxTargets/2 + 1)
			s.Listeners[0].HealthCheck = &HealthCheck{Protocol: HealthTCP}
			s.Listeners = append(s.Listeners, Listener{Protocol: TCP, Port: 81, TargetPort: 30081})
		}), "listeners[0].targets"},
		"targets of only one health check": {with(func(s *LoadBalancerSpec) {
			s.Targets = many(MaxTargets/2 + 1)
			s.Listeners[0].HealthCheck = &HealthCheck{Protocol: HealthTCP}
		}), ""},
		"udp listener with its own health check": {with(func(s *LoadBalancerSpec) {
			s.Listeners[0].Protocol, s.Listeners[0].HealthCheck = UDP, &HealthCheck{Protocol: HealthTCP, Port: 80}
		}), ""},
		"udp listener's health check needs a port": {with(func(s *LoadBalancerSpec) {
			s.Listeners[0].Protocol, s.Listeners[0].HealthCheck = UDP, &HealthCheck{Protocol: HealthTCP}
		}), "listeners[0].healthCheck.port"},
		"record":                          {CreateRecord{Kind: "security-group", Name: "Web servers (1)", Document: []byte(`{"a":[]}`)}, ""},
		"record kind":                     {CreateRecord{Kind: "Group", Name: "a", Document: []byte(`1`)}, "kind"},
		"record without name":             {CreateRecord{Kind: "k", Document: []byte(`1`)}, "name"},
		"record name too long":            {CreateRecord{Kind: "k", Name: strings.Repeat("x", 256), Document: []byte(`1`)}, "name"},
		"record name with newline":        {CreateRecord{Kind: "k", Name: "a\nb", Document: []byte(`1`)}, "name"},
		"record without document":         {UpdateRecord{}, "document"},
		"record document too long":        {UpdateRecord{Document: []byte(`"` + strings.Repeat("x", 64<<10) + `"`)}, "document"},
		"record document of two values":   {UpdateRecord{Document: []byte(`1 2`)}, "document"},
		"record document not UTF-8":       {UpdateRecord{Document: []byte("\"\xff\"")}, "document"},
		"label key":                       {CreateInstance{Name: "a", Zone: "z", Type: "t", Labels: map[string]string{"": "v"}}, "labels"},
		"label value":                     {CreateInstance{Name: "a", Zone: "z", Type: "t", Labels: map[string]string{"k": "a\x00b"}}, "labels.k"},
		"load balancer":                   {with(func(*LoadBalancerSpec) {}), ""},
		"load balancer without listeners": {with(func(s *LoadBalancerSpec) { s.Listeners = nil }), ""},
		"listener port 0":                 {with(func(s *LoadBalancerSpec) { s.Listeners = []Listener{{Protocol: TCP, Port: 0, TargetPort: 1}} }), "listeners[0].port"},
		"listener port too big":           {with(func(s *LoadBalancerSpec) { s.Listeners = []Listener{{Protocol: TCP, Port: 1, TargetPort: 65536}} }), "listeners[0].targetPort"},
		"listener twice": {with(func(s *LoadBalancerSpec) {
			s.Listeners = []Listener{{Protocol: TCP, Port: 1, TargetPort: 1}, {Protocol: TCP, Port: 1, TargetPort: 2}}
		}), "listeners[1].port"},
		"listener protocol": {with(func(s *LoadBalancerSpec) { s.Listeners = []Listener{{Protocol: "sctp", Port: 1, TargetPort: 1}} }), "listeners[0].protocol"},
		"target twice":      {with(func(s *LoadBalancerSpec) { s.Targets = []Target{{Instance: "i-1"}, {Instance: "i-1"}} }), "targets[1].instance"},
		"target empty":      {with(func(s *LoadBalancerSpec) { s.Targets = []Target{{Instance: ""}} }), "targets[0].instance"},
		"address twice": {with(func(s *LoadBalancerSpec) {
			s.Targets = []Target{{Instance: "i-1", IP: "10.0.0.1"}, {Instance: "i-1", IP: "10.0.0.1"}}
		}), "targets[1].instance"},
		"two addresses behind one instance": {with(func(s *LoadBalancerSpec) {
			s.Targets = []Target{{Instance: "i-1", IP: "10.0.0.1"}, {Instance: "i-1", IP: "fd00::1"}, {Instance: "i-1"}}
		}), ""},
		"target address":                 {with(func(s *LoadBalancerSpec) { s.Targets[0].IP = "pod" }), "targets[0].ip"},
		"target address in another form": {with(func(s *LoadBalancerSpec) { s.Targets[0].IP = "FD00:0::1" }), "targets[0].ip"},
		"udp without health checks":      {with(func(s *LoadBalancerSpec) { s.Listeners[0].Protocol, s.HealthCheck.Protocol = UDP, HealthNone }), ""},
		"health protocol":                {with(func(s *LoadBalancerSpec) { s.HealthCheck.Protocol = "ping" }), "healthCheck.protocol"},
		"health path":                    {with(func(s *LoadBalancerSpec) { s.HealthCheck.Path = "healthz" }), "healthCheck.path"},
		"health interval":                {with(func(s *LoadBalancerSpec) { s.HealthCheck.IntervalMillis = -1 }), "healthCheck.intervalMillis"},
		"listeners share a port": {with(func(s *LoadBalancerSpec) {
			s.Listeners = []Listener{{Protocol: TCP, Port: 53, TargetPort: 1}, {Protocol: UDP, Port: 53, TargetPort: 1}}
		}), ""},
		"udp needs a probe port": {with(func(s *LoadBalancerSpec) { s.Listeners[0].Protocol = UDP }), "healthCheck.port"},
		"proxy header on udp": {with(func(s *LoadBalancerSpec) {
			s.Listeners[0] = Listener{Protocol: UDP, Port: 1, TargetPort: 1, ProxyProtocol: ProxyV1}
			s.HealthCheck.Port = 1
		}), "listeners[0].proxyProtocol"},
		"proxy header with mode VIP":        {with(func(s *LoadBalancerSpec) { s.Listeners[0].Mode, s.Listeners[0].ProxyProtocol = ModeVIP, ProxyV2 }), "listeners[0].mode"},
		"proxy version":                     {with(func(s *LoadBalancerSpec) { s.Listeners[0].ProxyProtocol = "v3" }), "listeners[0].proxyProtocol"},
		"listener mode":                     {with(func(s *LoadBalancerSpec) { s.Listeners[0].Mode = "dsr" }), "listeners[0].mode"},
		"idle timeout":                      {with(func(s *LoadBalancerSpec) { s.Listeners[0].IdleTimeoutSeconds = 86401 }), "listeners[0].idleTimeoutSeconds"},
		"connection limit":                  {with(func(s *LoadBalancerSpec) { s.Listeners[0].MaxConnections = -1 }), "listeners[0].maxConnections"},
		"too many listeners":                {with(func(s *LoadBalancerSpec) { s.Listeners = make([]Listener, MaxListeners+1) }), "listeners"},
		"too many targets":                  {with(func(s *LoadBalancerSpec) { s.Targets = make([]Target, MaxTargets+1) }), "targets"},
		"target weight":                     {with(func(s *LoadBalancerSpec) { s.Targets[0].Weight = 257 }), "targets[0].weight"},
		"source ranges":                     {with(func(s *LoadBalancerSpec) { s.SourceRanges = []string{"10.0.0.0/8", "2001:db8::/32", "10.1.2.3/8"} }), ""},
		"source range":                      {with(func(s *LoadBalancerSpec) { s.SourceRanges = []string{"10.0.0.0"} }), "sourceRanges[0]"},
		"too many source ranges":            {with(func(s *LoadBalancerSpec) { s.SourceRanges = make([]string, MaxSourceRanges+1) }), "sourceRanges"},
		"affinity":                          {with(func(s *LoadBalancerSpec) { s.Affinity = "cookie" }), "affinity"},
		"affinity timeout without affinity": {with(func(s *LoadBalancerSpec) { s.AffinityTimeoutSeconds = 1 }), "affinityTimeoutSeconds"},
		"drain timeout":                     {with(func(s *LoadBalancerSpec) { s.DrainTimeoutSeconds = -2 }), "drainTimeoutSeconds"},
		"health codes": {with(func(s *LoadBalancerSpec) {
			s.HealthCheck = HealthCheck{Protocol: HealthHTTP, ExpectedCodes: "200-299,401"}
		}), ""},
		"descending health codes":             {with(func(s *LoadBalancerSpec) { s.HealthCheck = HealthCheck{Protocol: HealthHTTP, ExpectedCodes: "299-200"} }), "healthCheck.expectedCodes"},
		"health codes of tcp":                 {with(func(s *LoadBalancerSpec) { s.HealthCheck.ExpectedCodes = "200" }), "healthCheck.expectedCodes"},
		"load balancer scheme":                {CreateLoadBalancer{Name: "lb", Region: "r", Scheme: "private", LoadBalancerSpec: good}, "scheme"},
		"load balancer family":                {CreateLoadBalancer{Name: "lb", Region: "r", Families: []IPFamily{"ipv5"}, LoadBalancerSpec: good}, "families[0]"},
		"family twice":                        {CreateLoadBalancer{Name: "lb", Region: "r", Families: []IPFamily{IPv4, IPv4}, LoadBalancerSpec: good}, "families[1]"},
		"two addresses of one family":         {CreateLoadBalancer{Name: "lb", Region: "r", Addresses: []string{"1.1.1.1", "1.1.1.2"}, LoadBalancerSpec: good}, "addresses[1]"},
		"address that is not an IP address":   {UpdateLoadBalancer{Families: []IPFamily{IPv4}, Addresses: []string{"::1"}, LoadBalancerSpec: good}, "addresses[0]"},
		"address family":                      {CreateAddress{Name: "a", Family: "ip"}, "family"},
		"address scheme":                      {CreateAddress{Name: "a", Scheme: "ip"}, "scheme"},
		"address name":                        {CreateAddress{Name: "lb-000001-ipv6"}, "name"},
		"load balancer ip":                    {CreateLoadBalancer{Name: "lb", Region: "r", Addresses: []string{"1.2.3"}, LoadBalancerSpec: good}, "addresses[0]"},
		"disk":                                {CreateDisk{Name: "a", Zone: "z", Type: "t", SizeGiB: 1}, ""},
		"disk without size":                   {CreateDisk{Name: "a", Zone: "z", Type: "t"}, "sizeGiB"},
		"disk too big for a file":             {CreateDisk{Name: "a", Zone: "z", Type: "t", SizeGiB: MaxDiskGiB + 1}, "sizeGiB"},
		"disk iops":                           {CreateDisk{Name: "a", Zone: "z", Type: "t", SizeGiB: 1, IOPS: -1}, "iops"},
		"disk throughput":                     {CreateDisk{Name: "a", Zone: "z", Type: "t", SizeGiB: 1, ThroughputMiBps: -1}, "throughputMiBps"},
		"disk without a zone":                 {CreateDisk{Name: "a", Type: "t", SizeGiB: 1}, "zone"},
		"disk regional":                       {CreateDisk{Name: "a", ReplicaZones: []string{"y", "z"}, Type: "t", SizeGiB: 1}, ""},
		"disk in one zone twice":              {CreateDisk{Name: "a", ReplicaZones: []string{"z", "z"}, Type: "t", SizeGiB: 1}, "replicaZones"},
		"disk with one replica zone":          {CreateDisk{Name: "a", ReplicaZones: []string{"z"}, Type: "t", SizeGiB: 1}, "replicaZones"},
		"disk with three replica zones":       {CreateDisk{Name: "a", ReplicaZones: []string{"x", "y", "z"}, Type: "t", SizeGiB: 1}, "replicaZones"},
		"disk in a bad zone":                  {CreateDisk{Name: "a", ReplicaZones: []string{"y", "Z"}, Type: "t", SizeGiB: 1}, "replicaZones[1]"},
		"disk with zone and replica zones":    {CreateDisk{Name: "a", Zone: "z", ReplicaZones: []string{"y", "z"}, Type: "t", SizeGiB: 1}, "zone"},
		"disk without size but with a source": {CreateDisk{Name: "a", Zone: "z", Type: "t", SourceSnapshot: "snap-1"}, ""},
		"disk of two sources":                 {CreateDisk{Name: "a", Zone: "z", Type: "t", SourceSnapshot: "snap-1", SourceDisk: "disk-1"}, "sourceDisk"},
		"disk of negative size":               {CreateDisk{Name: "a", Zone: "z", Type: "t", SizeGiB: -1, SourceDisk: "disk-1"}, "sizeGiB"},
		"modification without fields":         {ModifyDisk{}, "type"},
		"modify to a bad type":                {ModifyDisk{Type: "T"}, "type"},
		"modify iops":                         {ModifyDisk{IOPS: -1}, "iops"},
		"modify throughput":                   {ModifyDisk{ThroughputMiBps: -1}, "throughputMiBps"},
		"pool":                                {SetDiskPool{}, ""},
		"negative pool":                       {SetDiskPool{SizeGiB: -1}, "sizeGiB"},
		"pool too large to count":             {SetDiskPool{SizeGiB: MaxPoolGiB + 1}, "sizeGiB"},
		"snapshot":                            {CreateSnapshot{Name: "a", Disk: "disk-1"}, ""},
		"snapshot without disk":               {CreateSnapshot{Name: "a"}, "disk"},
		"snapshot without name":               {CreateSnapshot{Disk: "disk-1"}, "name"},
		"snapshot named as an id":             {CreateSnapshot{Name: "snap-00000a", Disk: "disk-1"}, "name"},
		"snapshot label":                      {CreateSnapshot{Name: "a", Disk: "disk-1", Labels: map[string]string{"": ""}}, "labels"},
		"group":                               {CreateSnapshotGroup{Name: "a", Disks: []DiskID{"disk-1", "disk-2"}}, ""},
		"group without name":                  {CreateSnapshotGroup{Disks: []DiskID{"disk-1"}}, "name"},
		"group without disks":                 {CreateSnapshotGroup{Name: "a"}, "disks"},
		"group of too many":                   {CreateSnapshotGroup{Name: "a", Disks: make([]DiskID, MaxGroupDisks+1)}, "disks"},
		"group with a disk twice":             {CreateSnapshotGroup{Name: "a", Disks: []DiskID{"disk-1", "disk-1"}}, "disks"},
		"group of an empty id":                {CreateSnapshotGroup{Name: "a", Disks: []DiskID{"disk-1", ""}}, "disks"},
		"group label":                         {CreateSnapshotGroup{Name: "a", Disks: []DiskID{"disk-1"}, Labels: map[string]string{"": ""}}, "labels"},
		"attachment without instance":         {AttachDisk{}, "instance"},
		"detachment without instance":         {DetachDisk{Force: true}, "instance"},
		"resize without size":                 {ResizeDisk{}, "sizeGiB"},
		"disk type":                           {aDiskType(func(*DiskType) {}), ""},
		"disk type's size":                    {aDiskType(func(d *DiskType) { d.MinGiB = 3 }), "diskTypes.t"},
		"disk type's least IOPS":              {aDiskType(func(d *DiskType) { d.MinIOPS = 0 }), "diskTypes.t"},
		"disk type's usual IOPS":              {aDiskType(func(d *DiskType) { d.DefaultIOPS = 3 }), "diskTypes.t"},
		"disk type's throughput":              {aDiskType(func(d *DiskType) { d.MinThroughputMiBps = 2 }), "diskTypes.t"},
		"disk type's pool":                    {aDiskType(func(d *DiskType) { d.PoolGiB = -1 }), "diskTypes.t.poolGiB"},
		"too many disks":                      {Catalogue{InstanceTypes: []InstanceType{{Meta: Meta{Name: "t"}, CPUs: 1, MemoryMiB: 1, MaxDisks: 26}}}, "instanceTypes.t.maxDisks"},
		"token role":                          {CreateToken{Name: "t", Role: "no role"}, "role"},
		"token without a role":                {CreateToken{Name: "t"}, "role"},
		"token with role and service account": {CreateToken{ServiceAccount: "a", Role: RoleReader}, "role"},
		"access key":                          {CreateAccessKey{ServiceAccount: "a"}, ""},
		"access key without account":          {CreateAccessKey{Name: "k"}, "serviceAccount"},
		"access key name":                     {CreateAccessKey{Name: "K", ServiceAccount: "a"}, "name"},
		"role without permissions":            {CreateRole{Name: "r"}, "permissions"},
		"role permission":                     {CreateRole{Name: "r", Permissions: []Permission{"disks create"}}, "permissions"},
		"binding without account":             {CreateRoleBinding{Name: "b", Role: "r"}, "serviceAccount"},
		"token ttl":                           {CreateToken{Name: "t", Role: RoleReader, TTLSeconds: -1}, "ttlSeconds"},
		"network":                             {CreateNetwork{Name: "n", IPv4: "10.10.0.0/16", IPv6: "fd10::/48"}, ""},
		"network without range":               {CreateNetwork{Name: "n"}, "ipv4"},
		"network with an invalid range":       {CreateNetwork{Name: "n", IPv4: "10.10.0.0"}, "ipv4"},
		"network host bits":                   {CreateNetwork{Name: "n", IPv4: "10.10.0.1/16"}, "ipv4"},
		"network of IPv6":                     {CreateNetwork{Name: "n", IPv4: "fd10::/48"}, "ipv4"},
		"network of IPv4-mapped IPv6":         {CreateNetwork{Name: "n", IPv4: "10.10.0.0/16", IPv6: "::ffff:10.0.0.0/104"}, "ipv6"},
		"network too small":                   {CreateNetwork{Name: "n", IPv4: "10.10.0.0/31"}, "ipv4"},
		"network too large":                   {CreateNetwork{Name: "n", IPv4: "0.0.0.0/0"}, "ipv4"},
		"network multicast":                   {CreateNetwork{Name: "n", IPv4: "224.0.0.0/8"}, "ipv4"},
		"network loopback":                    {CreateNetwork{Name: "n", IPv4: "127.0.0.0/24"}, "ipv4"},
		"network over loopback":               {CreateNetwork{Name: "n", IPv4: "127.0.0.0/8"}, "ipv4"},
		"network over link-local":             {CreateNetwork{Name: "n", IPv4: "169.0.0.0/8"}, "ipv4"},
		"network over 0.0.0.0/8":              {CreateNetwork{Name: "n", IPv4: "0.0.0.0/8"}, "ipv4"},
		"network reserved":                    {CreateNetwork{Name: "n", IPv4: "255.0.0.0/8"}, "ipv4"},
		"network of ::1":                      {CreateNetwork{Name: "n", IPv4: "10.10.0.0/16", IPv6: "::/64"}, "ipv6"},
		"network IPv6 too large":              {CreateNetwork{Name: "n", IPv4: "10.10.0.0/16", IPv6: "fd00::/8"}, "ipv6"},
		"network over fe80::":                 {CreateNetwork{Name: "n", IPv4: "10.10.0.0/16", IPv6: "fe80::/32"}, "ipv6"},
		"pods over link-local":                {CreateNetwork{Name: "n", IPv4: "10.10.0.0/16", NetworkSpec: NetworkSpec{PodRanges: PodRanges{IPv4: "169.0.0.0/8", IPv4Mask: 9}}}, "podRanges.ipv4"},
		"subnet over link-local":              {CreateSubnet{Name: "s", Network: "net-1", IPv4: "169.0.0.0/8"}, "ipv4"},
		"network IPv6 of IPv4":                {CreateNetwork{Name: "n", IPv4: "10.10.0.0/16", IPv6: "10.11.0.0/16"}, "ipv6"},
		"pod range that overlaps the network": {CreateNetwork{Name: "n", IPv4: "10.10.0.0/16", NetworkSpec: NetworkSpec{PodRanges: PodRanges{IPv4: "10.0.0.0/8"}}}, "podRanges.ipv4"},
		"pod mask shorter than the pod range": {UpdateNetwork{NetworkSpec: NetworkSpec{PodRanges: PodRanges{IPv4: "10.0.0.0/16", IPv4Mask: 12}}}, "podRanges.ipv4Mask"},
		"pods without a range":                {UpdateNetwork{NetworkSpec: NetworkSpec{PodRanges: PodRanges{IPv6Mask: 64}}}, "podRanges.ipv6Mask"},
		"max routes":                          {UpdateNetwork{NetworkSpec: NetworkSpec{MaxRoutes: -1}}, "maxRoutes"},
		"subnet":                              {CreateSubnet{Name: "s", Network: "net-1", IPv4: "10.10.1.0/24"}, ""},
		"subnet without network":              {CreateSubnet{Name: "s", IPv4: "10.10.1.0/24"}, "network"},
		"subnet without range":                {CreateSubnet{Name: "s", Network: "net-1"}, "ipv4"},
		"route":                               {CreateRoute{Name: "r", Destination: "10.244.1.0/24", NextHop: "i-1"}, ""},
		"route to everything":                 {CreateRoute{Name: "r", Destination: "::/0", NextHop: "i-1"}, "destination"},
		"route to all of IPv4":                {CreateRoute{Name: "r", Destination: "0.0.0.0/0", NextHop: "i-1"}, "destination"},
		"route over link-local":               {CreateRoute{Name: "r", Destination: "168.0.0.0/7", NextHop: "i-1"}, "destination"},
		"route to loopback":                   {CreateRoute{Name: "r", Destination: "127.0.0.1/32", NextHop: "i-1"}, "destination"},
		"route without destination":           {CreateRoute{Name: "r", NextHop: "i-1"}, "destination"},
		"route to an address":                 {CreateRoute{Name: "r", Destination: "10.244.1.1", NextHop: "i-1"}, "destination"},
		"route host bits":                     {CreateRoute{Name: "r", Destination: "10.244.1.1/24", NextHop: "i-1"}, "destination"},
		"route not in canonical form":         {CreateRoute{Name: "r", Destination: "FD00::/64", NextHop: "i-1"}, "destination"},
		"route multicast":                     {CreateRoute{Name: "r", Destination: "224.0.0.0/8", NextHop: "i-1"}, "destination"},
		"route without next hop":              {CreateRoute{Name: "r", Destination: "10.244.1.0/24"}, "nextHop"},
		"subnet zone":                         {CreateSubnet{Name: "s", Network: "net-1", IPv4: "10.10.1.0/24", Zone: "A"}, "zone"},
		"user data":                           {CreateInstance{Name: "a", Zone: "z", Type: "t", UserData: strings.Repeat("x", MaxUserData+1)}, "userData"},
		"user data in bytes":                  {CreateInstance{Name: "a", Zone: "z", Type: "t", UserData: "\x1f\x8b"}, "userData"},
		"label in bytes":                      {CreateInstance{Name: "a", Zone: "z", Type: "t", Labels: map[string]string{"a": "\xff"}}, "labels.a"},
		"description in bytes":                {CreateServiceAccount{Name: "a", Description: "\xff"}, "description"},
		"notice":                              {CreateNotice{Type: NoticePreemption}, ""},
		"notice of an unknown type":           {CreateNotice{Type: "rain"}, "type"},
		"notice in the past":                  {CreateNotice{Type: NoticePreemption, InSeconds: -1}, "inSeconds"},
		"identity token without audience":     {CreateIdentityDocument{}, "audience"},
		"audience with a blank":               {CreateIdentityDocument{Audience: "a b"}, "audience"},
		"key use":                             {RotateSigningKey{Use: "fun"}, "use"},
		"key overlap":                         {RotateSigningKey{Use: KeyRegistry, OverlapSeconds: -1}, "overlapSeconds"},
		"catalogue zone's region":             {Catalogue{Zones: []Zone{{Meta: Meta{Name: "z"}, Region: "nope"}}}, "zones.z"},
		"default catalogue":                   {DefaultCatalogue(), ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := tc.req.Validate()
			if tc.field == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			e, ok := errors.AsType[*Error](err)
			if !ok || e.Kind != Invalid || len(e.Fields) == 0 || e.Fields[0].Field != tc.field {
				t.Fatalf("Validate: got error %#v, want Invalid with the first field %s", err, tc.field)
			}
		})
	}
}

func aDiskType(change func(*DiskType)) Catalogue {
	ty := DiskType{
		Meta: Meta{Name: "t"}, MinGiB: 1, MaxGiB: 2, MinIOPS: 1, DefaultIOPS: 1, MaxIOPS: 2,
		MinThroughputMiBps: 1, DefaultThroughputMiBps: 1, MaxThroughputMiBps: 1,
	}
	change(&ty)
	return Catalogue{DiskTypes: []DiskType{ty}}
}

// TestValidateNamesAllFields proves that the error of Validate names every invalid field, so that a
// user can fix a request in one step.
func TestValidateNamesAllFields(t *testing.T) {
	err := CreateInstance{}.Validate()
	e, ok := errors.AsType[*Error](err)
	if !ok || len(e.Fields) != 3 {
		t.Fatalf("Validate: got error %v, want three fields", err)
	}
}

// TestValidateRefusesControls proves that Validate refuses labels and paths
// with control characters. Otherwise a label could send control sequences to a
// user's terminal, or a path could inject a header into the request of a health check.
func TestValidateRefusesControls(t *testing.T) {
	label := func(v string) error {
		return CreateInstance{Name: "a", Zone: "z", Type: "t", Labels: map[string]string{"k": v}}.Validate()
	}
	path := func(p string) error {
		return UpdateLoadBalancer{LoadBalancerSpec: LoadBalancerSpec{
			Listeners: []Listener{{Protocol: TCP, Port: 80, TargetPort: 30080}}, HealthCheck: HealthCheck{Protocol: HealthHTTP, Path: p},
		}}.Validate()
	}
	for n, err := range []error{label("\u009b31m"), label("\x7f"), path("/\r\nX: y"), path("/%zz"), path("*")} {
		if !errors.Is(err, Invalid) {
			t.Errorf("Validate of invalid input %d: got error %v, want Invalid", n, err)
		}
	}
	for _, err := range []error{label("é👩‍🚀"), path(""), path("/healthz?full=1")} {
		if err != nil {
			t.Error(err)
		}
	}
}
