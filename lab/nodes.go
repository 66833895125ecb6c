package lab

// Nodes is the kind of nodes that a lab makes from the cloud's instances.
type Nodes string

const (
	// A hollow node is an instance that exists only as a record in the cloud, with a Node that
	// kwok keeps Ready.
	Hollow Nodes = "hollow"
	// Real nodes are machines: Linux namespaces with a kubelet. Real nodes need root
	// privileges.
	Real Nodes = "real"
	// None makes no nodes from instances. The user adds nodes.
	None Nodes = "none"
)
