// Package console serves the web console of a cloud. The console is a client of the cloud's public
// API. A hub watches the cloud once for all browsers. If there is a cluster, the hub also watches
// the cluster once. The hub merges the changes of 100 ms, and sends these changes to each browser
// as lines of JSON. The hub makes no calls while no browser is connected.
//
// Users get no permissions from the console. Each call of a browser has the browser's own token.
// The hub sends a browser only the objects that this token may read.
package console
