// Package bad tests the prose check on Go comments.
package bad

import _ "embed"

// data is what is stored.
//
//go:embed what-is-due.txt
var data string

// Count returns the number of
// somebody's calls. The controller reads the list and the controller reads the cache and then the controller compares
// the two of them and it writes the result into the status of the object that it read before.
//
//	what is due // an example is code, not prose
func Count() int { // behind the door
	/* what is counted */
	return len("what is due" + data) //nolint:gocritic // a string is not prose
}

type limits struct {
	calls int           // calls of one client in a second, without the calls of its own
	total int           // calls of all clients in a second, with the calls of the cloud itself
	wait  time.Duration // time that a client waits at most before the cloud answers with an error
	none  bool          // set if no limit holds
}
