// Package console serves the web console of a cloud. It is a client of the cloud's public API. A hub
// watches the cloud once, and the cluster once if there is a cluster, for any number of browsers. It
// merges the changes of 100 ms, and sends them to each browser as lines of JSON. The hub makes no calls
// while there are no browsers.
//
// Users get no permissions from the console. Each call of a browser has the browser's own token, and the
// hub sends a browser only the objects that this token may read.
package console
