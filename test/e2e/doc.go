// Package e2e contains the tests of the whole system. The tests use the programs in
// bin, real Kubernetes components and real clients. The package has no other code.
package e2e
