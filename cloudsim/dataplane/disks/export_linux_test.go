package disks

// Alone is alone, for tests.
var Alone = alone
