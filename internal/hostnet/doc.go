// Package hostnet reads the routes and addresses of this machine. It changes
// nothing.
package hostnet
