// Package console serves the web console of a cloud. The console is a client of the cloud's public
// API. A hub has one watch of the cloud for all browsers. If there is a cluster, the hub also has
// one watch of the cluster. The hub collects changes for 100 ms, and then sends these changes to
// each browser as one line of JSON. When no browser has been connected for 30 seconds, the hub
// makes no calls.
//
// Users get no permissions from the console. Each call of a browser has the browser's own token.
// The hub sends a browser only the objects of the cloud that this token may read. It sends the
// objects of the cluster to every browser.
package console
