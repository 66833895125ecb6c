// Package compose implements the commands of the services in docker-compose.yaml. Some commands
// write the keys and files of each service, and create the objects that the services need.
// Other commands run hollow nodes, real machines and their router in containers.
package compose
