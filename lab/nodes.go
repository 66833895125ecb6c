package lab

// Nodes is the kind of nodes that a lab makes from the cloud's instances.
type Nodes string

const (
	// Hollow nodes are Nodes without containers. Their instances exist only as records in the
	// cloud, and kwok keeps these Nodes Ready.
	Hollow Nodes = "hollow"
	// A real node is a machine of the lab: a set of Linux namespaces in which a kubelet runs. Real
	// nodes need root privileges.
	Real Nodes = "real"
	// None makes no nodes from instances. The user adds nodes.
	None Nodes = "none"
)
