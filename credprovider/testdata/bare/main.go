// Command bare reads a JSON document and writes a JSON document. Every plugin
// must do at least this work, so the benchmark compares the plugin with this
// command.
package main

import (
	"encoding/json"
	"os"
)

func main() {
	var in struct{ Image string }
	if json.NewDecoder(os.Stdin).Decode(&in) != nil {
		os.Exit(1)
	}
	out, err := json.Marshal(map[string]any{"kind": "CredentialProviderResponse", "auth": map[string]any{in.Image: map[string]string{"username": "a", "password": "b"}}})
	if err != nil {
		os.Exit(1)
	}
	if _, err := os.Stdout.Write(append(out, '\n')); err != nil {
		os.Exit(1)
	}
}
