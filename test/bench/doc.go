// Package bench contains the benchmarks of the whole system. The benchmarks run the programs in
// bin. Some benchmarks measure another program as well, and compare the results.
package bench
