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
