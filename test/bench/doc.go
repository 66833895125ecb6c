// Package bench contains the benchmarks of the whole system. The benchmarks run the programs in
// bin. Some benchmarks compare this project with other programs in the same run.
package bench
