// Package compose has the commands of the services in docker-compose.yaml: it writes the
// keys and files of each service, creates the objects that the services need, and runs
// hollow nodes, real machines and their router in containers.
package compose
