package consolecli

import (
	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/console"
	"github.com/cloudsim-dev/allinone/lab/process"
)

// logsOf returns a function that lists the logs of the lab in a data dir.
func logsOf(dataDir string) (func() ([]console.Log, error), error) {
	dir, err := process.DirAt(dataDir)
	if err != nil {
		return nil, err
	}
	return func() (all []console.Log, err error) {
		files, err := dir.Logs()
		for _, f := range files {
			all = append(all, console.Log{Name: f.Name, Instance: cloudsim.InstanceID(f.Instance), Path: f.Path})
		}
		return all, err
	}, nil
}
