package console

// These are the kinds of the cluster's objects. The cloud's API does not have these kinds.
const (
	KindNode             = "node"
	KindService          = "service"
	KindVolumeAttachment = "volumeAttachment"
)

// Sink receives the objects of the cluster. Several goroutines may call its functions at the same
// time.
type Sink struct {
	// Put adds or replaces an object: a Node, Service or VolumeAttachment.
	Put func(kind, id string, object any)
	// Delete removes an object.
	Delete func(kind, id string)
	// State reports whether the watch of the cluster works. If the watch works, problem is empty.
	// Otherwise problem contains the reason. The watch may report the same state several times.
	State func(problem string)
}

// Node is the part of a Kubernetes Node that the console shows.
type Node struct {
	Name       string        `json:"name"`
	ProviderID string        `json:"providerID,omitempty"`
	Zone       string        `json:"zone,omitempty"` // label topology.kubernetes.io/zone
	Ready      string        `json:"ready"`          // True, False or Unknown
	Reason     string        `json:"reason,omitempty"`
	Addresses  []NodeAddress `json:"addresses,omitempty"`
	Taints     []string      `json:"taints,omitempty"` // KEY:EFFECT
	Pods       int           `json:"pods"`
	Cordoned   bool          `json:"cordoned,omitempty"`
}

// NodeAddress is an address of a Node.
type NodeAddress struct {
	Type    string `json:"type"`
	Address string `json:"address"`
}

// Service is the part of a Kubernetes Service of type LoadBalancer that the console shows. The
// console uses NAMESPACE/NAME as the id of a Service.
type Service struct {
	Namespace string   `json:"namespace"`
	Name      string   `json:"name"`
	UID       string   `json:"uid"`
	Ingress   []string `json:"ingress,omitempty"`
}

// VolumeAttachment is the part of a Kubernetes VolumeAttachment that the console shows.
type VolumeAttachment struct {
	Name     string `json:"name"`
	Node     string `json:"node"`
	Disk     string `json:"disk,omitempty"` // volume handle of the PersistentVolume
	Attached bool   `json:"attached"`
}
