// Package e2e contains the tests and benchmarks of the whole system. They use the programs in
// bin, real Kubernetes components and real clients. It has no code besides the tests.
package e2e
