// Package bench contains the benchmarks of the whole system. They use the programs in bin, and
// compare this project with other programs in the same run. The package has no other code.
package bench
